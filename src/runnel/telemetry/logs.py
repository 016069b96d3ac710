"""The Telemetry port as log lines: one for each decision, its name first, its ids as fields."""

import logging
from collections.abc import Sequence

from runnel.core import events as e
from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, Token
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.ports import telemetry as names
from runnel.ports.store import Header
from runnel.telemetry.levels import level_of

LOGGER = "runnel"
_log = logging.getLogger(LOGGER)

_SETTLED = (e.NodeCompleted, e.NodeFailed, e.NodeSkipped, e.NodeCancelled)


class LogTelemetry:
    """Writes to the logger `runnel`; what its level leaves out costs a look at the level."""

    def event(self, name: str, **fields: object) -> None:
        level = level_of(name)
        if _log.isEnabledFor(level):
            # Without the search for the caller's file and line, which nobody wants to know here:
            # it was a quarter of the time of a line.
            record = logging.LogRecord(LOGGER, level, "", 0, name, None, None)
            record.event, record.fields = name, fields
            _log.handle(record)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: Header | None,
        graph: Graph | None = None,
    ) -> None:
        """The end of an execution is told by its header; its nodes are told one by one below."""
        if header is not None and header.state in EXECUTION_FINAL:
            self._tell_end(header)
        if _log.isEnabledFor(logging.DEBUG):
            for event in events:
                self._tell_detail(execution_id, event)

    def started(self, task: Task, worker: str, at: float) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            self.event(names.TASK_STARTED, worker=worker, **_ids(task.token))

    def ended(self, task: Task, outcome: str, took_s: float) -> None:
        """Its node tells, once that is settled."""

    def measured(self, name: str, value: float) -> None:
        """A line for each would be most of a log; what is too much is told as an event."""

    def _tell_end(self, header: Header) -> None:
        is_failure = header.state is ExecutionState.FAILED
        name = names.EXECUTION_FAILED if is_failure else names.EXECUTION_FINISHED
        if not _log.isEnabledFor(level_of(name)):
            return
        began = header.started_at or header.created_at
        fields: dict[str, object] = {
            "execution_id": header.execution_id,
            "workflow": header.workflow,
            "state": str(header.state),
            "took_s": round((header.finished_at or began) - began, 3),
        }
        self.event(name, **fields, **({"error": header.error} if header.error else {}))

    def _tell_detail(self, execution_id: str, event: AnyEvent) -> None:
        if isinstance(event, e.ExecutionStarted):
            self.event(names.EXECUTION_STARTED, execution_id=execution_id)
        elif isinstance(event, _SETTLED):
            fields: dict[str, object] = {"execution_id": execution_id, "node_id": event.node}
            if event.item != NO_ITEM:
                fields["item"] = event.item
            self.event(names.NODE_SETTLED, **fields, how=type(event).__name__)


def _ids(token: Token) -> dict[str, object]:
    ids: dict[str, object] = {
        "execution_id": token.execution_id,
        "node_id": token.node_id,
        "attempt": token.attempt,
    }
    return ids if token.item == NO_ITEM else {**ids, "item": token.item}
