"""Edge cases from a review. Each of them once left an execution stuck, or ended it wrongly."""

import pytest

from runnel.core.commands import CancelExecution
from runnel.core.decide.decision_context import ExecutionScope
from runnel.core.ids import (
    CHILD_ID_CHARS_MAX,
    NO_ITEM,
    ExecutionId,
    NodeId,
    NodeRef,
    Nonce,
    TaskToken,
    get_root_id,
    make_child_id,
)
from runnel.core.retry import MESSAGE_CHARS_MAX, RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.templates.errors import MissingValueError
from runnel.core.workflow import EnginePolicy
from tests.core_driver import ROOT, TRANSIENT, CoreDriver, make_node, make_workflow

TIDY = RunWhen.ALL_SETTLED


def test_queued_clean_up_items_are_issued_after_the_execution_closes() -> None:
    definition = make_workflow(
        make_node("tidy", for_each="[1, 2, 3]", run_when=TIDY), make_node("a"), max_concurrency=2
    )
    driver = CoreDriver(definition).start()

    driver.cancel()
    driver.finish_all()

    assert driver.states() == {"tidy": S.COMPLETED, "a": S.CANCELLED}
    assert driver.root.state is X.CANCELLED


def test_a_clean_up_node_that_waits_for_a_slot_keeps_its_place_when_the_execution_closes() -> None:
    retry = RetryPolicy(initial_delay=1, jitter=False)
    definition = make_workflow(
        make_node("tidy", run_when=TIDY, retry=retry), make_node("a"), max_concurrency=1
    )
    driver = CoreDriver(definition).start()
    driver.fail("tidy", TRANSIENT)
    driver.advance(1)

    driver.cancel()
    driver.finish_all()

    assert driver.states() == {"tidy": S.COMPLETED, "a": S.CANCELLED}


def test_a_lost_task_whose_key_is_in_a_blob_is_issued_again() -> None:
    keyed = make_node("b", "a", concurrency_key="{{ a.key }}")
    for slots in (None, 1):
        driver = CoreDriver(make_workflow(make_node("a"), keyed, max_concurrency=slots)).start()
        driver.finish_with_blob("a", {"key": "k"})
        assert driver.queued() == ["b"]

        driver.take_over()

        assert driver.queued() == ["b"], f"with {slots} slots"
        driver.finish("b")
        assert driver.root.state is X.COMPLETED


def test_children_of_different_nodes_never_share_an_id() -> None:
    e = ExecutionId("e")

    ids = [
        make_child_id(NodeRef(e, NodeId("a"), 1), 1),
        make_child_id(NodeRef(e, NodeId("a.1")), 1),
        make_child_id(NodeRef(e, NodeId("a")), 1),
        make_child_id(NodeRef(e, NodeId("a"), 11), 1),
        make_child_id(NodeRef(e, NodeId("a"), 1), 11),
        make_child_id(NodeRef(e, NodeId("a 1")), 1),
    ]

    assert len(set(ids)) == len(ids)


def test_the_id_of_a_child_has_a_bound_however_deep_it_is() -> None:
    """PostgreSQL refuses an index entry of more than 2,704 bytes."""
    names = [NodeId(f"n{depth}" + "a" * 190) for depth in range(20)]

    first, second = [[ExecutionId("e")] for _ in range(2)]
    for ids, item in ((first, NO_ITEM), (second, 7)):
        for name in names:
            ids.append(make_child_id(NodeRef(ids[-1], name, item), 3))

    assert first[1:3] == [f"e.{names[0]}.3", f"e.{names[0]}.3.{names[1]}.3"]
    assert max(map(len, first + second)) <= CHILD_ID_CHARS_MAX
    assert len({*first, *second}) == len(first) + len(second) - 1
    assert {get_root_id(id_) for id_ in first + second} == {"e"}


def test_max_concurrency_counts_child_executions() -> None:
    child = make_workflow(make_node("c"))
    subs = [make_node(f"s{i}", handler="workflow", child=child) for i in range(5)]
    driver = CoreDriver(make_workflow(*subs, max_concurrency=2)).start()
    seen = []

    while driver.tasks:
        seen.append(len(driver.tasks))
        driver.send_completed(next(iter(driver.tasks)))

    assert max(seen) == 2
    assert driver.root.state is X.COMPLETED


def test_a_forced_cancel_ends_the_clean_up_too() -> None:
    wait = make_node("tidy", "a", handler="wait_for_signal", config={"signal": "s"}, run_when=TIDY)
    driver = CoreDriver(make_workflow(make_node("a"), wait)).start()
    driver.cancel()
    driver.cancel()
    assert driver.states()["tidy"] is S.WAITING

    driver.send(CancelExecution(execution_id=ROOT, is_forced=True))

    assert driver.states()["tidy"] is S.CANCELLED
    assert driver.root.state is X.CANCELLED


def test_an_orderly_shutdown_is_not_a_crash() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    for _ in range(driver.policy.crashes_max + 5):
        driver.start_task("a")
        driver.lose("a", was_started=False)

    assert driver.states()["a"] is S.QUEUED


def test_error_texts_are_bounded_at_any_depth() -> None:
    inner = make_workflow(*[make_node(f"n{i}") for i in range(3)], on_failure="continue")
    driver = CoreDriver(make_workflow(make_node("sub", handler="workflow", child=inner))).start()

    for token in list(driver.tasks):
        driver.send_failed(token, TRANSIENT_LARGE)

    assert len(str(driver.root.error)) < MESSAGE_CHARS_MAX + 200


def test_an_error_quotes_only_the_beginning_of_a_large_value() -> None:
    nap = make_node("nap", "a", handler="sleep", config={"seconds": "{{ a.text }}"})
    driver = CoreDriver(make_workflow(make_node("a"), nap), policy=EnginePolicy()).start()

    driver.finish("a", {"text": "x" * 100_000})

    assert driver.root.state is X.FAILED
    assert len(str(driver.root.nodes[1].error)) < 500


def test_a_key_or_signal_name_that_is_too_long_is_refused() -> None:
    for field in (
        {"concurrency_key": "{{ a.text }}"},
        {"handler": "wait_for_signal", "config": {"signal": "{{ a.text }}"}},
    ):
        driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a", **field))).start()

        driver.finish("a", {"text": "x" * 100_000})

        assert driver.root.state is X.FAILED
        assert len(str(driver.root.nodes[1].error)) < 700


TRANSIENT_LARGE = type(TRANSIENT)(
    type="ValueError", message="m" * MESSAGE_CHARS_MAX, types=("ValueError",)
)


def test_a_forced_cancel_reaches_the_clean_up_of_children() -> None:
    wait = make_node("tidy", handler="wait_for_signal", config={"signal": "s"}, run_when=TIDY)
    driver = CoreDriver(
        make_workflow(
            make_node("sub", handler="workflow", child=make_workflow(make_node("c"), wait))
        )
    ).start()

    driver.send(CancelExecution(execution_id=ROOT, is_forced=True))

    assert {execution.state for execution in driver.all_executions()} == {X.CANCELLED}


def test_a_condition_can_read_its_execution() -> None:
    condition = "execution.workflow == 'test' and execution.id == 'e1' and execution.version == 1"
    driver = CoreDriver(
        make_workflow(
            make_node("a", condition=condition), make_node("b", condition="not execution")
        )
    )

    driver.start()

    assert driver.states() == {"a": S.QUEUED, "b": S.SKIPPED}


@pytest.mark.parametrize("root", ["nobody", "item"])
def test_an_unknown_name_is_missing(root: str) -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    with pytest.raises(MissingValueError, match=root):
        ExecutionScope(driver.root, driver).lookup(root)


@pytest.mark.parametrize(("item", "key"), [(NO_ITEM, "e1/n"), (0, "e1/n/0"), (7, "e1/n/7")])
def test_every_attempt_of_a_node_or_item_has_the_same_idempotency_key(item: int, key: str) -> None:
    attempts = [
        TaskToken(ROOT, NodeId("n"), item, number, Nonce(f"n{number}")) for number in (1, 2)
    ]

    assert {token.idempotency_key for token in attempts} == {key}
