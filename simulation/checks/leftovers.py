"""Nothing is left over at the end: no task, timer, message, holder of a key or open header."""

from runnel.core.events import Event, ExecutionFinished, ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.states import EXECUTION_FINAL
from runnel.ports.store import Header
from simulation.commit_log import Check, Truth


class Leftovers(Check):
    name = "leftovers"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._times: dict[str, list[float]] = {}
        """When each execution was started, and when it ended."""

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, ExecutionStarted | ExecutionFinished):
            self._times.setdefault(execution.id, []).append(at)

    def ended(self) -> None:
        state = self.truth.server.state
        tasks = state.board.count()
        if tasks:
            raise self.broken(f"{tasks} tasks")
        for partition in state.partitions:
            timers = partition.timers.all()
            if timers:
                raise self.broken(f"timers {[timer.key for timer in timers]}")
            unread = [entry.command for entry in self.truth.inbox(partition.number).entries]
            if unread:
                raise self.broken(f"messages {unread}")
        if self.truth.limits:
            raise self.broken(f"concurrency keys {sorted(self.truth.limits)}")
        for header in state.headers.values():
            if header.state not in EXECUTION_FINAL:
                raise self.broken(f"{header.execution_id} is listed as {header.state}")
            execution = self.truth.executions.get(header.execution_id)
            if execution is None:
                raise self.broken(f"{header.execution_id} is listed and has no history")
            if _listed(header) != _wanted(execution):
                raise self.broken(f"{header.execution_id} is listed as {header}")
            listed = [at for at in (header.started_at, header.finished_at) if at is not None]
            if listed != self._times[header.execution_id]:
                raise self.broken(f"{header.execution_id} is listed with the times {listed}")


def _listed(header: Header) -> list[object]:
    return [
        header.workflow,
        header.state,
        header.parent_id,
        header.created_at,
        header.started_at,
        header.finished_at,
        header.error,
    ]


def _wanted(execution: Execution) -> list[object]:
    return [
        execution.graph.workflow.name,
        execution.state,
        execution.parent.execution_id if execution.parent else None,
        execution.created_at,
        execution.started_at,
        execution.finished_at,
        str(execution.error) if execution.error else None,
    ]
