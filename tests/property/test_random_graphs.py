"""The core against the reference: random graphs, rules, policies and schedules."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.core.commands import TaskCompleted
from runnel.core.ids import NodeId, TaskToken
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import make_inline_value
from runnel.core.workflow import Node, OnFailure, Workflow
from simulation.reference import ReferenceExecution
from tests.core_driver import PERMANENT, TRANSIENT, CoreDriver, make_node, make_workflow

SHOWN = {NodeState.QUEUED: NodeState.RUNNING, NodeState.WAITING: NodeState.RUNNING}


@st.composite
def workflows(draw: st.DrawFn) -> tuple[Workflow, set[str]]:
    size = draw(st.integers(1, 9))
    nodes: list[Node] = []
    false = set()
    for index in range(size):
        name = f"n{index}"
        parents = [p.id for p in nodes if draw(st.booleans()) and draw(st.booleans())]
        is_false = draw(st.integers(0, 7)) == 0
        if is_false:
            false.add(name)
        nodes.append(
            make_node(
                name,
                *parents,
                run_when=draw(st.sampled_from([*RunWhen, RunWhen.DEFAULT, RunWhen.DEFAULT])),
                condition="false" if is_false else None,
                retry=RetryPolicy(max_retries=1, jitter=False),
            )
        )
    policy = draw(st.sampled_from(OnFailure))
    most = draw(st.sampled_from([None, None, 1, 2]))
    return make_workflow(*nodes, on_failure=policy, max_concurrency=most), false


@settings(
    max_examples=4 * settings().max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(made=workflows(), seed=st.integers(0, 2**32))
def test_every_schedule_ends_like_the_reference(made: tuple[Workflow, set[str]], seed: int) -> None:
    definition, false = made
    chance = random.Random(seed)
    driver = CoreDriver(definition).start()
    expected = ReferenceExecution(definition, false)

    while not driver.root.is_final:
        _one_step(driver, expected, chance)
        _compare(driver, expected, is_limited=definition.max_concurrency is not None)

    assert driver.root.state == expected.result
    assert not driver.tasks
    assert not driver.timers


def _one_step(driver: CoreDriver, expected: ReferenceExecution, chance: random.Random) -> None:
    """Makes progress in most cases and causes a fault in some. No fault may change the outcome."""
    choice = chance.random()
    if not driver.tasks:
        driver.advance(60.0)
        return
    token = chance.choice([*driver.tasks])
    # The reference has no slots, so it must be given the nodes that were issued.
    expected.has_run = {issued_token.node_id for issued_token in driver.issued}
    if choice < 0.08:
        driver.take_over(tasks_survive=chance.random() < 0.5)
    elif choice < 0.16:
        driver.lose(token.node_id, was_started=False)
    elif choice < 0.2:
        driver.cancel()
        expected.cancel()
    elif choice < 0.3:
        _fail_for_a_moment(driver, token.node_id)
    elif choice < 0.5:
        driver.fail(token.node_id, PERMANENT)
        expected.settle(token.node_id, is_ok=False)
    else:
        driver.finish(token.node_id, {"x": 1})
        expected.settle(token.node_id, is_ok=True)


def _fail_for_a_moment(driver: CoreDriver, node_id: str) -> None:
    failures = driver.root.nodes[driver.graph.index[NodeId(node_id)]].failures
    if failures == 0:
        driver.fail(node_id, TRANSIENT)


def _compare(driver: CoreDriver, expected: ReferenceExecution, *, is_limited: bool) -> None:
    states = {node_id: SHOWN.get(state, state) for node_id, state in driver.states().items()}
    if is_limited:
        # A node without a slot is still PENDING; the reference has no slots.
        running = {NodeState.RUNNING, NodeState.PENDING}
        for node_id, state in expected.state.items():
            same = states[node_id] == state or (state in running and states[node_id] in running)
            assert same, (node_id, state, states[node_id])
        return
    assert states == expected.state


@settings(deadline=None)
@given(made=workflows(), seed=st.integers(0, 2**32))
def test_the_history_alone_rebuilds_the_state(made: tuple[Workflow, set[str]], seed: int) -> None:
    definition, false = made
    chance = random.Random(seed)
    driver = CoreDriver(definition).start()
    expected = ReferenceExecution(definition, false)

    while not driver.root.is_final:
        _one_step(driver, expected, chance)
        rebuilt = driver.rebuilt()
        assert rebuilt.nodes == driver.root.nodes
        assert rebuilt.unsettled_parents == driver.root.unsettled_parents
        assert rebuilt.in_flight == driver.root.in_flight
        assert rebuilt.state == driver.root.state


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(made=workflows(), seed=st.integers(0, 2**32))
def test_a_rerun_without_faults_ends_like_a_run_without_faults(
    made: tuple[Workflow, set[str]], seed: int
) -> None:
    definition, false = made
    chance = random.Random(seed)
    former = CoreDriver(definition).start()
    expected = ReferenceExecution(definition, false)
    while not former.root.is_final:
        _one_step(former, expected, chance)
    untroubled = CoreDriver(definition).start().finish_all(lambda _task: {"x": 1})
    again = [node.id for node in definition.nodes if chance.random() < 0.1]

    rerun = CoreDriver(definition).rerun(former.root, *again)
    began = {node.node_id for node in rerun.issued}
    rerun.finish_all(lambda _task: {"x": 1})

    assert rerun.states() == untroubled.states()
    assert rerun.output() == untroubled.output()
    completed = {name for name, state in former.states().items() if state is NodeState.COMPLETED}
    assert again or not began & (completed - _below(definition, former))


def _below(definition: Workflow, former: CoreDriver) -> set[str]:
    """Returns nodes that depend on one that neither completed nor was skipped, in node order."""
    good = {NodeState.COMPLETED, NodeState.SKIPPED}
    bad = {name for name, state in former.states().items() if state not in good}
    for node in definition.nodes:
        if bad & {*node.dependencies}:
            bad.add(node.id)
    return bad


@pytest.mark.slow
@pytest.mark.parametrize("width", [2, 3, 8])
def test_parents_that_finish_in_the_same_instant_fire_the_join_once(width: int) -> None:
    parents = [f"p{index}" for index in range(width)]
    definition = make_workflow(
        make_node("start"), *[make_node(p, "start") for p in parents], make_node("join", *parents)
    )
    for seed in range(3_400):
        chance = random.Random(seed)
        driver = CoreDriver(definition).start()
        driver.finish("start")
        reports = [(p, repeat) for p in parents for repeat in range(chance.randint(1, 3))]
        chance.shuffle(reports)
        tokens = {p: driver.token(p) for p in parents}

        for parent, _ in reports:
            _report_again(driver, tokens, parent)

        assert [str(token.node_id) for token in driver.issued].count("join") == 1
        driver.finish("join")
        assert driver.root.state is ExecutionState.COMPLETED


def _report_again(driver: CoreDriver, tokens: dict[str, TaskToken], parent: str) -> None:
    driver.send(TaskCompleted(token=tokens[parent], output=make_inline_value({"from": parent})))
