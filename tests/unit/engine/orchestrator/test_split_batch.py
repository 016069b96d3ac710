"""A batch that is too large for one commit: the process may end between two of them."""

from runnel.core.commands import CancelExecution
from runnel.core.effects import ClearTimer, Decision, DropTask, TimerKey, TimerKind
from runnel.core.events import (
    Event,
    ExecutionClosing,
    ExecutionFinished,
    NodeCancelled,
    NodeCompleted,
    NodeWaits,
    Wait,
)
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.states import ExecutionState
from runnel.core.values import make_value_from_json
from runnel.engine.orchestrator.batch import CommitBatch
from runnel.ports.store import CommitLimits
from runnel.testing.conformance.suite import make_token


def test_timers_are_cleared_before_the_events_that_make_them_obsolete() -> None:
    batch = CommitBatch(0.0, CommitLimits(writes=1))
    timer = TimerKey(ExecutionId("e1"), NodeId(""), kind=TimerKind.SLA)
    finished = ExecutionFinished(state=ExecutionState.COMPLETED)

    batch.add("e1", Decision(events=[finished], effects=[ClearTimer(timer)]), None)
    first, second = batch.seal(1)

    assert list(first.timers_cleared) == [timer]
    assert [history.aggregate_id for history in second.histories] == ["e1"]


def test_tasks_are_dropped_before_the_history_that_explains_it() -> None:
    batch = CommitBatch(1.0, CommitLimits(writes=2))
    cancelled = [NodeCancelled(node=NodeId(name), reason="cancelled") for name in "abc"]
    drops = [DropTask(make_token(name)) for name in "abc"]

    batch.add("x", Decision(events=[*cancelled], effects=[*drops]), None)
    commits = list(batch.seal(1))

    with_history = [number for number, commit in enumerate(commits) if commit.histories]
    dropped = [number for number, commit in enumerate(commits) if commit.dropped]
    assert len(commits) > 1
    assert max(dropped) <= min(with_history)


def test_children_are_notified_before_their_parent_is_finished() -> None:
    batch = CommitBatch(1.0, CommitLimits(writes=1))
    cancel = CancelExecution(execution_id=ExecutionId("x.child.1"))
    ends: list[Event] = [
        ExecutionClosing(outcome=ExecutionState.CANCELLED),
        ExecutionFinished(state=ExecutionState.CANCELLED),
    ]

    batch.add("x", Decision(events=ends), None)
    batch.cancels.append(cancel)
    batch.add("x.child.1", Decision(events=ends), None)
    first, second, third = batch.seal(1)

    assert list(first.messages) == [cancel]
    assert [history.aggregate_id for history in second.histories] == ["x"]
    assert [history.aggregate_id for history in third.histories] == ["x.child.1"]


def test_a_parent_does_not_end_before_the_child_that_ended_it() -> None:
    batch = CommitBatch(1.0, CommitLimits(writes=1))
    waiting = NodeWaits(node=NodeId("child"), wait=Wait.CHILD, detail="x.child.1")
    completed = NodeCompleted(node=NodeId("child"), output=make_value_from_json(b"1"))
    ends = ExecutionFinished(state=ExecutionState.COMPLETED)

    batch.add("x", Decision(events=[waiting]), None)
    batch.add("x.child.1", Decision(events=[ends]), None)
    batch.add("x", Decision(events=[completed, ends]), None)
    commits = list(batch.seal(1))

    written = [history.aggregate_id for commit in commits for history in commit.histories]
    assert written == ["x", "x.child.1", "x"]


def test_the_events_of_an_aggregate_in_one_commit_are_one_entry() -> None:
    batch = CommitBatch(1.0, CommitLimits(writes=2))
    ends = ExecutionFinished(state=ExecutionState.COMPLETED)

    for aggregate_id in ("x", "x", "y", "z"):
        batch.add(aggregate_id, Decision(events=[ends]), None)
    commits = list(batch.seal(1))

    aggregate_ids = [[history.aggregate_id for history in commit.histories] for commit in commits]
    assert aggregate_ids == [["x"], ["y", "z"]]


def test_a_batch_in_one_commit_sends_no_message_for_commands_it_handled() -> None:
    batch = CommitBatch(1.0, CommitLimits())
    batch.cancels.append(CancelExecution(execution_id=ExecutionId("x.child.1")))

    batch.add("x", Decision(events=[ExecutionFinished(state=ExecutionState.CANCELLED)]), None)
    (commit,) = batch.seal(1)

    assert not commit.messages
