"""Checks that a cancelled execution stops: only clean-up nodes start, and running code
is stopped.
"""

from runnel.core.events import (
    Event,
    ExecutionClosing,
    MapStarted,
    NodeCancelled,
    NodeQueued,
    NodeWaits,
    Wait,
)
from runnel.core.execution import Execution
from runnel.core.states import ExecutionState
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck


class CancellationCheck(InvariantCheck):
    name = "cancelled"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._cancelled: set[str] = set()
        self._orphans: dict[str, bool] = {}
        """Children whose parent stopped waiting for them, by id; True after a forced cancel."""

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        if isinstance(event, ExecutionClosing) and event.outcome is ExecutionState.CANCELLED:
            self._cancelled.add(execution.id)
            self._check_force(execution, event)
        if isinstance(event, NodeCancelled):
            self._note_child(execution, event)
        if execution.outcome is None or not isinstance(event, NodeQueued | NodeWaits | MapStarted):
            return
        compiled = execution.graph.nodes[execution.graph.index[event.node]]
        if not compiled.is_clean_up or execution.is_abrupt:
            raise self.make_violation(
                f"{execution.id}/{event.node} starts "
                f"after the execution closed as {execution.outcome}"
            )

    def _check_force(self, execution: Execution, event: ExecutionClosing) -> None:
        order = self.truth.orders.get(execution.id)
        if order is not None and event.is_abrupt is not order.is_forced:
            raise self.make_violation(
                f"{execution.id} is cancelled with is_abrupt {event.is_abrupt}, "
                f"expected {order.is_forced}"
            )

    def _note_child(self, execution: Execution, event: NodeCancelled) -> None:
        run = execution.run(execution.graph.index[event.node], event.item)
        if run is None or run.wait is not Wait.CHILD or run.is_final:
            return
        self._orphans[run.detail] = execution.is_abrupt

    def on_commit(self, step: CommitStep) -> None:
        """Checks that the commit that cancels a parent also cancels its children, in the same
        partition.
        """
        orphans, self._orphans = self._orphans, {}
        if self.truth.cuts_commits:
            return
        for id_, is_forced in orphans.items():
            child = self.truth.executions.get(id_)
            if child is None or child.is_final:
                continue
            if child.outcome is None:
                raise self.make_violation(
                    f"{id_} is {child.state} although its parent was cancelled"
                )
            if is_forced and not child.is_abrupt:
                raise self.make_violation(
                    f"{id_} cleans up although its parent was cancelled with force"
                )

    def on_end(self) -> None:
        for id_ in sorted(self._cancelled):
            state = self.truth.executions[id_].state
            if state not in (ExecutionState.CANCELLED, ExecutionState.FAILED):
                raise self.make_violation(f"{id_} was cancelled and is {state}")
        running = [token for tokens in self.truth.running_handlers.values() for token in tokens]
        if running:
            raise self.make_violation(f"code still runs after everything has ended: {running}")
