"""A cancelled execution stops: nothing but clean-up begins, and what runs is told to stop."""

from runnel.core.events import Event, ExecutionClosing, MapStarted, NodeQueued, NodeWaits
from runnel.core.execution import Execution
from runnel.core.states import ExecutionState
from runnel.testing.simulation.truth import Check, Truth


class Cancelled(Check):
    name = "cancelled"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._asked: set[str] = set()

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, ExecutionClosing) and event.outcome is ExecutionState.CANCELLED:
            self._asked.add(execution.id)
        if execution.outcome is None or not isinstance(event, NodeQueued | NodeWaits | MapStarted):
            return
        compiled = execution.graph.nodes[execution.graph.index[event.node]]
        if not compiled.is_clean_up or execution.is_abrupt:
            raise self.broken(f"{execution.id}/{event.node} begins after {execution.outcome}")

    def ended(self) -> None:
        for id_ in sorted(self._asked):
            state = self.truth.executions[id_].state
            if state not in (ExecutionState.CANCELLED, ExecutionState.FAILED):
                raise self.broken(f"{id_} was cancelled and is {state}")
        running = [token for tokens in self.truth.code.values() for token in tokens]
        if running:
            raise self.broken(f"code still runs after everything has ended: {running}")
