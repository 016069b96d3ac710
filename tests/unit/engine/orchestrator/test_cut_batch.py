"""A batch that is too large for one commit: the process may end between two of them."""

from runnel.core.decision import Decision
from runnel.core.effects import ClearTimer, TimerKey, TimerKind
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.states import ExecutionState
from runnel.engine.orchestrator.batch import Batch
from runnel.ports.store import CommitLimits


def test_timers_are_cleared_before_the_events_that_make_them_pointless() -> None:
    batch = Batch(0.0, CommitLimits(writes=1))
    timer = TimerKey(ExecutionId("e1"), NodeId(""), kind=TimerKind.SLA)
    finished = ExecutionFinished(state=ExecutionState.COMPLETED)

    batch.add("e1", Decision(events=[finished], effects=[ClearTimer(timer)]), None)
    first, second = batch.seal(1)

    assert list(first.timers_cleared) == [timer]
    assert [history.aggregate_id for history in second.histories] == ["e1"]
