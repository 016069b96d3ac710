"""Tasks whose own code raises Skip."""

import pytest

from runnel.core.codec import decode_entry, decode_message, encode_message
from runnel.core.commands import TASK_ENDINGS, TaskSkipped
from runnel.core.events import NodeSkipped
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.run_when import RunWhen, SkipReason
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.workflow import OnFailure
from tests.core_driver import ROOT, TRANSIENT, CoreDriver, make_node, make_workflow

TOKEN = TaskToken(ExecutionId("e1"), NodeId("a"), -1, 2, Nonce("n"))
# Data as the version that introduced it stored it.
MESSAGE = (
    b'[1,{"type":"TaskSkipped","token":["e1","a",-1,2,"n"],"reason":"empty","worker":"w",'
    b'"started_at":5.0}]'
)
ENTRY_BEFORE = b'[1,5.0,[{"type":"NodeSkipped","node":"a","reason":"condition is false"}]]'
ENTRY = (
    b'[1,5.0,[{"type":"NodeSkipped","node":"a","item":3,"reason":"its own code skipped it",'
    b'"detail":"empty","worker":"w","started_at":4.0}]]'
)


def skip(driver: CoreDriver, node_id: str, reason: str = "", *, item: int = NO_ITEM) -> None:
    token = driver.token(node_id, item)
    del driver.tasks[token]
    driver.send(TaskSkipped(token=token, reason=reason, worker="w", started_at=driver.now))


def test_a_task_that_skips_settles_its_node_as_skipped_with_its_reason() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"))).start()

    skip(driver, "a", "nothing to do")
    driver.finish("b")

    run = driver.root.nodes[0]
    assert (run.state, run.skip, run.reason) == (S.SKIPPED, SkipReason.BY_ITSELF, "nothing to do")
    assert (run.worker, run.started_at, run.attempt) == ("w", driver.now, 1)
    assert driver.root.state is X.COMPLETED
    assert driver.rebuilt().nodes == driver.root.nodes


def test_without_a_message_the_reason_says_that_the_code_skipped() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    skip(driver, "a")

    assert driver.root.nodes[0].reason == "its own code skipped it"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (RunWhen.DEFAULT, S.SKIPPED),
        (RunWhen.ALL_COMPLETED, S.SKIPPED),
        (RunWhen.ONE_FAILED, S.SKIPPED),
        (RunWhen.NONE_FAILED, S.QUEUED),
        (RunWhen.ALL_SETTLED, S.QUEUED),
    ],
)
def test_its_children_treat_it_as_a_skipped_parent(rule: RunWhen, expected: S) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a", run_when=rule))).start()

    skip(driver, "a")

    assert driver.states()["b"] is expected


@pytest.mark.parametrize("policy", OnFailure)
def test_a_skip_is_not_a_failure_in_any_policy(policy: OnFailure) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"), on_failure=policy)).start()

    skip(driver, "a")

    assert driver.states() == {"a": S.SKIPPED, "b": S.QUEUED}


def test_its_slot_goes_to_the_next_queued_node() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"), max_concurrency=1)).start()
    assert driver.queued() == ["a"]

    skip(driver, "a")

    assert driver.queued() == ["b"]
    assert driver.root.in_flight == 1


def test_its_concurrency_key_is_given_back() -> None:
    nodes = [make_node(name, concurrency_key="k", concurrency_limit=1) for name in ("a", "b")]
    driver = CoreDriver(make_workflow(*nodes)).start()
    assert driver.queued() == ["a"]

    skip(driver, "a")
    assert driver.queued() == ["b"]
    skip(driver, "b")

    assert [limit.is_empty for limit in driver.limits.values()] == [True]


def test_a_skip_after_a_retry_forgets_the_wait() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()
    driver.fail("a", TRANSIENT)
    driver.advance(60)

    skip(driver, "a")

    run = driver.root.nodes[0]
    assert (run.state, run.attempt, run.failures, run.wait) == (S.SKIPPED, 2, 1, None)
    assert not driver.timers


def test_a_late_skip_of_an_old_attempt_is_ignored() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()
    old = driver.token("a")
    driver.lose("a")

    driver.send(TaskSkipped(token=old))

    assert driver.states() == {"a": S.QUEUED}


def test_a_repeated_skip_counts_once() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"))).start()
    token = driver.token("a")
    skip(driver, "a")
    events = len(driver.histories[ROOT])

    driver.send(TaskSkipped(token=token))

    assert len(driver.histories[ROOT]) == events


def test_an_item_that_skips_keeps_its_place_as_null() -> None:
    driver = CoreDriver(make_workflow(make_node("m", for_each="input.items"))).start(
        {"items": [1, 2, 3]}
    )

    driver.finish("m", "one", item=0)
    skip(driver, "m", item=1)
    driver.finish("m", "three", item=2)

    assert driver.output() == ["one", None, "three"]
    assert driver.root.state is X.COMPLETED
    assert driver.rebuilt().nodes == driver.root.nodes


def test_a_map_whose_items_all_skip_completes_with_nulls() -> None:
    definition = make_workflow(make_node("m", for_each="input.items"), max_concurrency=1)
    driver = CoreDriver(definition).start({"items": [1, 2]})

    skip(driver, "m", item=0)
    skip(driver, "m", item=1)

    assert driver.output() == [None, None]
    assert driver.root.in_flight == 0


def test_a_skip_survives_a_takeover_in_the_middle_of_a_map() -> None:
    driver = CoreDriver(make_workflow(make_node("m", for_each="input.items"))).start(
        {"items": [1, 2]}
    )
    skip(driver, "m", item=0)

    driver.take_over()
    driver.finish("m", "two", item=1)

    assert driver.output() == [None, "two"]


def test_the_message_is_read_as_it_was_stored() -> None:
    command = TaskSkipped(token=TOKEN, reason="empty", worker="w", started_at=5.0)

    assert decode_message(MESSAGE) == command
    assert encode_message(command) == MESSAGE
    assert command.aggregate_id == "e1"
    assert isinstance(command, TASK_ENDINGS)


def test_the_event_is_read_as_it_was_stored_before_and_after_it_had_items() -> None:
    before = NodeSkipped(node=NodeId("a"), reason=SkipReason.CONDITION_FALSE)
    after = NodeSkipped(
        node=NodeId("a"),
        item=3,
        reason=SkipReason.BY_ITSELF,
        detail="empty",
        worker="w",
        started_at=4.0,
    )

    assert decode_entry(ENTRY_BEFORE).events == [before]
    assert decode_entry(ENTRY).events == [after]
