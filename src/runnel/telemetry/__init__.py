"""What the engine tells an operator, made visible: log lines."""

from collections.abc import Sequence

from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import Telemetry

# Several that are told the same.


class FanOutTelemetry:
    """Implements the Telemetry port."""

    def __init__(self, *sinks: Telemetry) -> None:
        self._sinks = sinks

    def event(self, name: str, **fields: object) -> None:
        for each in self._sinks:
            each.event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        for each in self._sinks:
            each.committed(execution_id, at, events, header, graph)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        for each in self._sinks:
            each.started(task, worker, at)

    def ended(self, task: TaskMessage, outcome: str, took_s: float) -> None:
        for each in self._sinks:
            each.ended(task, outcome, took_s)

    def measured(self, name: str, value: float) -> None:
        for each in self._sinks:
            each.measured(name, value)
