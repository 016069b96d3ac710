"""A batch that is too large for one commit: the process may end between two of them."""

from runnel.core.commands import CancelExecution
from runnel.core.decision import Decision
from runnel.core.effects import ClearTimer, DropTask, TimerKey, TimerKind
from runnel.core.events import Event, ExecutionClosing, ExecutionFinished, NodeCancelled
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.states import ExecutionState
from runnel.engine.orchestrator.batch import Batch
from runnel.ports.store import CommitLimits
from runnel.testing.conformance.values import token


def test_timers_are_cleared_before_the_events_that_make_them_pointless() -> None:
    batch = Batch(0.0, CommitLimits(writes=1))
    timer = TimerKey(ExecutionId("e1"), NodeId(""), kind=TimerKind.SLA)
    finished = ExecutionFinished(state=ExecutionState.COMPLETED)

    batch.add("e1", Decision(events=[finished], effects=[ClearTimer(timer)]), None)
    first, second = batch.seal(1)

    assert list(first.timers_cleared) == [timer]
    assert [history.aggregate_id for history in second.histories] == ["e1"]


def test_tasks_are_dropped_before_the_history_says_why() -> None:
    batch = Batch(1.0, CommitLimits(writes=2))
    cancelled = [NodeCancelled(node=NodeId(name), reason="cancelled") for name in "abc"]
    drops = [DropTask(token(name)) for name in "abc"]

    batch.add("x", Decision(events=[*cancelled], effects=[*drops]), None)
    commits = list(batch.seal(1))

    told = [number for number, commit in enumerate(commits) if commit.histories]
    dropped = [number for number, commit in enumerate(commits) if commit.dropped]
    assert len(commits) > 1
    assert max(dropped) <= min(told)


def test_children_are_told_before_their_parent_is_over() -> None:
    batch = Batch(1.0, CommitLimits(writes=1))
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


def test_a_batch_in_one_commit_tells_nobody_what_it_does_itself() -> None:
    batch = Batch(1.0, CommitLimits())
    batch.cancels.append(CancelExecution(execution_id=ExecutionId("x.child.1")))

    batch.add("x", Decision(events=[ExecutionFinished(state=ExecutionState.CANCELLED)]), None)
    (commit,) = batch.seal(1)

    assert not commit.messages
