"""Checks that no task, timer, message, holder of a key or unfinished header is left at the end."""

from runnel.core.events import Event, ExecutionFinished, ExecutionStarted
from runnel.core.execution import Execution
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.ports.store import ExecutionHeader
from simulation.commit_log import GroundTruth, InvariantCheck


class LeftoverCheck(InvariantCheck):
    name = "leftovers"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._times: dict[str, list[float]] = {}
        """The start and end time of each execution."""

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, ExecutionStarted | ExecutionFinished):
            self._times.setdefault(execution.id, []).append(at)

    def on_end(self) -> None:
        state = self.truth.server.state
        tasks = state.board.count()
        if tasks:
            raise self.make_violation(f"{tasks} tasks remain")
        for partition in state.partitions:
            timers = partition.timers.all()
            if timers:
                raise self.make_violation(f"timers remain: {[timer.key for timer in timers]}")
            unread = [entry.command for entry in self.truth.get_inbox(partition.number).entries]
            if unread:
                raise self.make_violation(f"messages remain: {unread}")
        if self.truth.limits:
            raise self.make_violation(f"concurrency keys remain: {sorted(self.truth.limits)}")
        for header in state.headers.values():
            if header.state not in FINAL_EXECUTION_STATES:
                raise self.make_violation(f"{header.execution_id} is listed as {header.state}")
            execution = self.truth.executions.get(header.execution_id)
            if execution is None:
                raise self.make_violation(f"{header.execution_id} is listed and has no history")
            if _extract_header_fields(header) != _build_expected_fields(execution):
                raise self.make_violation(f"{header.execution_id} is listed as {header}")
            listed = [at for at in (header.started_at, header.finished_at) if at is not None]
            if listed != self._times[header.execution_id]:
                raise self.make_violation(
                    f"{header.execution_id} is listed with the times {listed}"
                )


def _extract_header_fields(header: ExecutionHeader) -> list[object]:
    return [
        header.workflow,
        header.state,
        header.parent_id,
        header.created_at,
        header.started_at,
        header.finished_at,
        header.error,
    ]


def _build_expected_fields(execution: Execution) -> list[object]:
    return [
        execution.graph.workflow.name,
        execution.state,
        execution.parent.execution_id if execution.parent else None,
        execution.created_at,
        execution.started_at,
        execution.finished_at,
        str(execution.error) if execution.error else None,
    ]
