"""Nobody is late: what waits is due when it should be, and begins then when nothing fails."""

from math import inf

from runnel.core.events import (
    Event,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeWaits,
    TaskWasLost,
    Wait,
)
from runnel.core.execution import Execution
from runnel.core.ids import TaskToken
from simulation.commit_log import ROUNDING_S, GroundTruth, HandlerInvocation, InvariantCheck
from simulation.faults import Fault

_TIMED_WAITS = frozenset({Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT, Wait.SLEEP, Wait.SIGNAL})
# A few calls to the store; an owner that only looks now and then would take seconds.
LATE_S_MAX = 0.5
# What has taken two workers down comes back within 2 s, after three within 4 s, and so on.
SUSPECT_LOSSES = 2
CRASH_DELAY_S, CRASH_DELAY_S_MAX = 2.0, 60.0


class LatenessCheck(InvariantCheck):
    name = "late"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._suspects: set[tuple[str, str, int]] = set()
        """What has taken workers down, and has not been made to wait for that."""
        self._started_at: dict[tuple[str, TaskToken], float] = {}

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        match event:
            case TaskWasLost():
                self._note_loss(execution, event)
            case NodeWaits():
                self._check_due_time(execution, event, at)
                self._check_start(execution, event, at)
            case NodeQueued() | NodeCompleted() | NodeFailed():
                self._check_start(execution, event, at)

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: HandlerInvocation
    ) -> None:
        self._started_at[worker, token] = self.truth.server.clock.monotonic()

    def on_handler_ended(self, worker: str, token: TaskToken) -> None:
        """Whoever is paused can't stop its code in time."""
        began = self._started_at.pop((worker, token), None)
        if began is None or Fault.PAUSE in self.truth.plan.faults:
            return
        execution = self.truth.executions.get(token.execution_id)
        most = (
            inf if execution is None else execution.graph.node(token.node_id).node.timeout_seconds
        )
        lasted_s = self.truth.server.clock.monotonic() - began
        if lasted_s > most + LATE_S_MAX:
            raise self.make_violation(
                f"the code of {token} ran for {lasted_s:.3f} s, at most {most} may it"
            )

    def _note_loss(self, execution: Execution, event: TaskWasLost) -> None:
        run = execution.run(execution.graph.index[event.node], event.item)
        if event.was_started and run is not None and run.losses + 1 >= SUSPECT_LOSSES:
            self._suspects.add((execution.id, event.node, event.item))

    def _check_due_time(self, execution: Execution, event: NodeWaits, at: float) -> None:
        """By what was asked for: a longer wait breaks no other rule."""
        node = execution.graph.node(event.node).node
        expected_s: float | None
        if event.wait is Wait.SLEEP:
            expected_s = node.config["seconds"]
        elif event.wait is Wait.SIGNAL:
            expected_s = node.config.get("timeout_seconds")
        elif event.wait is Wait.CRASH:
            self._check_crash_delay(execution, event, at)
            return
        else:
            return
        actual_s = None if event.due is None else event.due - at
        if actual_s != expected_s and abs((actual_s or 0.0) - (expected_s or 0.0)) > ROUNDING_S:
            name = f"{execution.id}/{event.node}"
            raise self.make_violation(f"{name} waits for {actual_s} s, asked for were {expected_s}")

    def _check_crash_delay(self, execution: Execution, event: NodeWaits, at: float) -> None:
        self._suspects.discard((execution.id, event.node, event.item))
        run = execution.run(execution.graph.index[event.node], event.item)
        losses = 0 if run is None else run.losses
        most = min(CRASH_DELAY_S_MAX, CRASH_DELAY_S * 2 ** (losses - SUSPECT_LOSSES))
        actual_s = (event.due or 0.0) - at
        if losses < SUSPECT_LOSSES or not 0 < actual_s <= most + ROUNDING_S:
            name = f"{execution.id}/{event.node}"
            raise self.make_violation(f"{name} waits for {actual_s:.3f} s after {losses} losses")

    def _check_start(
        self,
        execution: Execution,
        event: NodeQueued | NodeCompleted | NodeFailed | NodeWaits,
        at: float,
    ) -> None:
        name = f"{execution.id}/{event.node}[{event.item}]"
        if (
            isinstance(event, NodeQueued)
            and (execution.id, event.node, event.item) in self._suspects
        ):
            raise self.make_violation(f"{name} begins at once after it has taken workers down")
        run = execution.run(execution.graph.index[event.node], event.item)
        if (
            not self.truth.plan.is_fault_free
            or run is None
            or run.due is None
            or run.wait not in _TIMED_WAITS
        ):
            return
        if at - run.due > LATE_S_MAX:
            raise self.make_violation(f"{name} goes on {at - run.due:.3f} s late")
