"""Nothing happens before its time: a sleep, a retry, a rate limit lasts until it is due."""

from runnel.core.events import Event, NodeCompleted, NodeQueued, Wait
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM
from runnel.testing.simulation.truth import Check

_TIMED = frozenset({Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT, Wait.SLEEP})


class Timers(Check):
    """By the clock of the owner that lets it happen: clocks differ, and none of them is right."""

    name = "timers"

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        if not isinstance(event, NodeQueued | NodeCompleted):
            return
        item = getattr(event, "item", NO_ITEM)
        run = execution.run(execution.graph.index[event.node], item)
        if run is not None and run.wait in _TIMED and run.due is not None and at < run.due:
            early_s = run.due - at
            raise self.broken(f"{execution.id}/{event.node} goes on {early_s:.3f} s too early")
