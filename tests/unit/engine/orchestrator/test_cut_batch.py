"""A batch that is too large for one commit: the process may end between two of them."""

from runnel.core.decision import Decision
from runnel.core.effects import ClearTimer, DropTask, TimerKey, TimerKind
from runnel.core.events import ExecutionFinished, NodeCancelled
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
