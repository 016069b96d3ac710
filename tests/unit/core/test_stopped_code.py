"""Clean-up nodes start after the code of cancelled tasks has ended, within a time limit."""

from collections.abc import Callable

import pytest

from runnel.core.commands import ChildSettled, TaskLost, TimerFired
from runnel.core.events import CodeEnded
from runnel.core.ids import NodeId, NodeRef, TaskToken
from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.workflow import EnginePolicy, OnFailure, Workflow
from tests.core_driver import ROOT, CoreDriver, make_node, make_workflow

POLICY = EnginePolicy(stop_s_max=10.0)


def make_driver(workflow: Workflow) -> CoreDriver:
    return CoreDriver(workflow, policy=POLICY, is_code_slow=True).start()


def make_pair(**fields: object) -> Workflow:
    """Returns a workflow with two parallel tasks and a clean-up node after both."""
    return make_workflow(
        make_node("a"),
        make_node("b"),
        make_node("tidy", "a", "b", run_when=RunWhen.ALL_SETTLED),
        **fields,
    )


def make_mapped(**fields: object) -> Workflow:
    return make_workflow(
        make_node("each", for_each="[1, 2]"),
        make_node("tidy", "each", run_when=RunWhen.ONE_FAILED),
        **fields,
    )


def close_pair(driver: CoreDriver, action: str) -> None:
    driver.start_task("b")
    if action == "cancel":
        driver.finish("a")
        driver.cancel()
    elif action == "fail fast":
        driver.fail("a")
    else:
        driver.finish("a")
        driver.advance(60)


@pytest.mark.parametrize("action", ["cancel", "fail fast", "timeout"])
def test_a_clean_up_node_starts_after_the_code_of_cancelled_tasks_has_ended(action: str) -> None:
    driver = make_driver(make_pair(timeout_seconds=60.0))

    close_pair(driver, action)

    assert driver.states()["b"] is S.CANCELLED  # the node is cancelled at once
    assert driver.queued() == []

    driver.end_code("b")

    assert driver.queued() == ["tidy"]
    driver.finish("tidy")
    assert driver.root.is_final
    assert not driver.timers


@pytest.mark.parametrize(
    "ending",
    [
        lambda driver, token: driver.send_completed(token),
        lambda driver, token: driver.send_failed(token),
        lambda driver, token: driver.lose_token(token, was_started=True),
        lambda driver, _token: driver.advance(10),
    ],
    ids=["its late result", "its late error", "its loss", "the time limit"],
)
def test_every_end_of_a_stopped_task_ends_the_wait(
    ending: Callable[[CoreDriver, TaskToken], None],
) -> None:
    driver = make_driver(make_pair())
    close_pair(driver, "cancel")
    token = driver.stopping[0]

    ending(driver, token)

    assert driver.queued() == ["tidy"]
    assert driver.states()["b"] is S.CANCELLED
    assert driver.rebuilt().stopping == {}


def test_the_history_tells_a_reported_end_from_an_assumed_one() -> None:
    ended: list[bool] = []
    for ending in (CoreDriver.end_code, lambda driver: driver.advance(10)):
        driver = make_driver(make_pair())
        close_pair(driver, "cancel")
        ending(driver)
        ended += [
            event.is_assumed
            for entry in driver.decoded_history()
            for event in entry.events
            if isinstance(event, CodeEnded)
        ]

    assert ended == [False, True]


def test_a_clean_up_node_waits_for_all_stopped_tasks() -> None:
    driver = make_driver(make_pair())
    driver.cancel()

    driver.end_code("a")
    assert driver.queued() == []
    driver.end_code("b")

    assert driver.queued() == ["tidy"]


def test_a_report_of_another_attempt_does_not_end_the_wait() -> None:
    driver = make_driver(make_pair())
    driver.cancel()
    token = driver.stopping[0]
    old = TaskToken(token.execution_id, token.node_id, token.item, token.attempt + 1, token.nonce)

    driver.send(TaskLost(token=old, reason="late"))
    driver.end_code("b")

    assert driver.queued() == []


def test_a_workflow_without_clean_up_nodes_ends_at_once() -> None:
    driver = make_driver(make_workflow(make_node("a"), make_node("b")))

    driver.cancel()

    assert driver.root.state is X.CANCELLED
    assert driver.stopping == []
    assert not driver.timers


def test_nothing_waits_if_every_clean_up_node_is_settled() -> None:
    tidy = make_node("tidy", "a", run_when=RunWhen.ALL_SETTLED)
    driver = make_driver(make_workflow(make_node("a"), make_node("b"), tidy))
    driver.finish("a")
    driver.finish("tidy")

    driver.cancel()

    assert driver.root.state is X.CANCELLED
    assert driver.stopping == []


def test_a_forced_cancellation_ends_the_execution_while_code_is_being_stopped() -> None:
    driver = make_driver(make_pair())
    driver.cancel()

    driver.cancel(is_forced=True)

    assert driver.root.state is X.CANCELLED
    assert driver.states()["tidy"] is S.CANCELLED
    assert not driver.timers


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_the_items_that_a_failed_map_stops_are_waited_for(on_failure: OnFailure) -> None:
    driver = make_driver(make_mapped(on_failure=on_failure))

    driver.fail("each", item=0)
    assert driver.states()["each"] is S.FAILED
    assert driver.queued() == []
    driver.end_code("each")

    assert driver.queued() == ["tidy"]


def test_a_clean_up_node_that_waited_for_a_slot_waits_for_stopped_code() -> None:
    ready = make_node("ready", run_when=RunWhen.ALL_SETTLED)
    driver = make_driver(make_workflow(make_node("a"), ready, max_concurrency=1))
    assert driver.queued() == ["a"]

    driver.cancel()
    assert driver.queued() == []
    driver.end_code()

    assert driver.queued() == ["ready"]


def test_a_clean_up_node_waits_for_a_slot_and_then_for_the_items_that_a_clean_up_map_stops() -> (
    None
):
    driver = make_driver(
        make_workflow(
            make_node("a"),
            make_node("each", "a", for_each="[1, 2]", run_when=RunWhen.ALL_SETTLED),
            make_node("first", "a", run_when=RunWhen.ALL_SETTLED),
            make_node("tidy", "first", run_when=RunWhen.ALL_SETTLED),
            max_concurrency=2,
        )
    )
    driver.start_task("a")
    driver.cancel()
    driver.end_code("a")
    driver.finish("first")
    assert driver.queued() == ["each", "each"]

    driver.fail("each", item=0)

    assert driver.queued() == []  # the code of the other item is being stopped
    driver.end_code("each")
    assert driver.queued() == ["tidy"]


def test_a_later_stop_extends_the_time_limit() -> None:
    maps = [make_node(name, for_each="[1, 2]") for name in ("m", "n")]
    tidy = make_node("tidy", "m", "n", run_when=RunWhen.ALL_SETTLED)
    driver = make_driver(make_workflow(*maps, tidy, on_failure=OnFailure.CONTINUE))

    driver.fail("m", item=0)
    driver.advance(8)
    driver.fail("n", item=0)
    driver.send(TimerFired(ref=NodeRef(ROOT, NodeId("")), kind="stop"))  # due before the second
    driver.advance(8)
    assert driver.queued() == []
    driver.advance(2)

    assert driver.queued() == ["tidy"]


@pytest.mark.parametrize("tasks_survive", [False, True])
def test_a_new_owner_continues_the_wait(tasks_survive: bool) -> None:
    """A task that died with its process is lost, and one that still runs is stopped again."""
    driver = make_driver(make_pair())
    close_pair(driver, "cancel")
    stopped = list(driver.stopping)

    driver.take_over(tasks_survive=tasks_survive)

    if tasks_survive:
        assert driver.queued() == []
        assert driver.dropped[-1] == stopped[0]
        assert driver.timers
        driver.end_code()
    assert driver.queued() == ["tidy"]


def test_a_stopped_task_whose_node_is_not_cancelled_runs_again() -> None:
    """The owner died between the commit that stopped the task and the one that cancels its node."""
    driver = make_driver(make_pair())
    token = driver.token("b")

    driver.stop_only(token)

    assert driver.token("b").attempt == token.attempt + 1


# -- child executions --------------------------------------------------------------------------


def make_family(**child_fields: object) -> Workflow:
    nodes = [make_node("inner"), *child_fields.pop("nodes", [])]  # type: ignore[misc]
    child = make_workflow(*nodes, **child_fields)
    return make_workflow(
        make_node("sub", handler="workflow", child=child),
        make_node("tidy", "sub", run_when=RunWhen.ALL_SETTLED),
    )


def test_a_clean_up_node_waits_for_the_code_of_a_cancelled_child() -> None:
    driver = make_driver(make_family())

    driver.cancel()
    assert driver.states()["sub"] is S.CANCELLED
    assert driver.queued() == []
    driver.end_code("inner")

    assert driver.queued() == ["tidy"]


def test_a_clean_up_node_waits_for_the_clean_up_nodes_of_a_child() -> None:
    driver = make_driver(
        make_family(nodes=[make_node("sweep", "inner", run_when=RunWhen.ALL_SETTLED)])
    )

    driver.cancel()
    driver.advance(10)
    assert driver.queued() == ["sweep"]
    driver.advance(100)  # the limit is for code that does not stop, not for clean-up nodes
    assert driver.queued() == ["sweep"]
    driver.send_completed(next(iter(driver.tasks)))

    assert driver.queued() == ["tidy"]


def test_a_new_owner_asks_a_child_again_that_has_ended() -> None:
    driver = make_driver(make_family())
    driver.cancel()
    child = next(id_ for id_ in driver.histories if id_ != ROOT)
    driver.loses_messages_to_root = True
    driver.end_code("inner")
    driver.loses_messages_to_root = False
    assert driver.execution(child).is_final
    assert driver.queued() == []

    driver.take_over()

    assert driver.queued() == ["tidy"]


def test_a_repeated_end_of_a_child_changes_nothing() -> None:
    driver = make_driver(make_family())
    driver.cancel()
    attempt = next(iter(driver.root.stopping.values()))
    driver.end_code("inner")

    driver.send(
        ChildSettled(token=attempt.token, child_id=attempt.child, state=X.CANCELLED)  # type: ignore[arg-type]
    )

    assert driver.queued() == ["tidy"]
