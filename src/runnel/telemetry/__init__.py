"""What the engine tells an operator, made visible: log lines."""

from collections.abc import Sequence

from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.ports.store import Header
from runnel.ports.telemetry import Telemetry

# Several that are told the same.


class Several:
    """Implements the Telemetry port."""

    def __init__(self, *told: Telemetry) -> None:
        self._told = told

    def event(self, name: str, **fields: object) -> None:
        for each in self._told:
            each.event(name, **fields)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: Header | None,
        graph: Graph | None = None,
    ) -> None:
        for each in self._told:
            each.committed(execution_id, at, events, header, graph)

    def started(self, task: Task, worker: str, at: float) -> None:
        for each in self._told:
            each.started(task, worker, at)

    def ended(self, task: Task, outcome: str, took_s: float) -> None:
        for each in self._told:
            each.ended(task, outcome, took_s)

    def measured(self, name: str, value: float) -> None:
        for each in self._told:
            each.measured(name, value)
