"""Checks that a settled node, a settled item and a final execution never change."""

from runnel.core.events import (
    CodeEnded,
    Event,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
)
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM
from simulation.commit_log import GroundTruth, InvariantCheck

_FINAL_EVENTS = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)


class SettledStateCheck(InvariantCheck):
    name = "settled"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._settled_items: set[tuple[str, str, int]] = set()

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        event_name = type(event).__name__
        if execution.is_final:
            raise self.make_violation(f"{event_name} after {execution.id} was {execution.state}")
        node = getattr(event, "node", None)
        if node is None or isinstance(event, CodeEnded):
            return  # the code of a settled attempt may end later
        item = getattr(event, "item", NO_ITEM)
        run = execution.nodes[execution.graph.index[node]]
        if run.is_final and event_name != "SignalConsumed":
            raise self.make_violation(f"{event_name} after {execution.id}/{node} was {run.state}")
        if item == NO_ITEM:
            return
        key = (execution.id, node, item)
        if key in self._settled_items:
            raise self.make_violation(
                f"{event_name} after item {item} of {execution.id}/{node} was settled"
            )
        if isinstance(event, _FINAL_EVENTS):
            self._settled_items.add(key)
