"""Checks that waits have the requested length, and that they end on time in runs without faults."""

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
# The maximum delay at the end of a wait: the time of a few calls to the store. An owner that only
# polls would need seconds.
LATE_S_MAX = 0.5
# A task that crashed two workers restarts within 2 s, after three within 4 s, and so on.
SUSPECT_LOSSES = 2
CRASH_DELAY_S, CRASH_DELAY_S_MAX = 2.0, 60.0


class LatenessCheck(InvariantCheck):
    name = "late"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._suspects: set[tuple[str, str, int]] = set()
        """Tasks that crashed workers and whose delayed restart is not planned yet."""
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
        """Checks that code ends within its time limit.

        Skips runs with pauses, which stop the worker itself.
        """
        started_at = self._started_at.pop((worker, token), None)
        if started_at is None or Fault.PAUSE in self.truth.plan.faults:
            return
        execution = self.truth.executions.get(token.execution_id)
        limit_s = (
            inf if execution is None else execution.graph.node(token.node_id).node.timeout_seconds
        )
        lasted_s = self.truth.server.clock.monotonic() - started_at
        if lasted_s > limit_s + LATE_S_MAX:
            raise self.make_violation(
                f"the code of {token} ran for {lasted_s:.3f} s, its limit is {limit_s} s"
            )

    def _note_loss(self, execution: Execution, event: TaskWasLost) -> None:
        run = execution.run(execution.graph.index[event.node], event.item)
        is_suspect = event.was_started and not event.was_alone
        if is_suspect and run is not None and run.losses + 1 >= SUSPECT_LOSSES:
            self._suspects.add((execution.id, event.node, event.item))

    def _check_due_time(self, execution: Execution, event: NodeWaits, at: float) -> None:
        """Checks that a wait is as long as requested.

        No other check finds a wait that is too long.
        """
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
            raise self.make_violation(f"{name} waits for {actual_s} s instead of {expected_s} s")

    def _check_crash_delay(self, execution: Execution, event: NodeWaits, at: float) -> None:
        self._suspects.discard((execution.id, event.node, event.item))
        run = execution.run(execution.graph.index[event.node], event.item)
        losses = 0 if run is None else run.losses
        delay_s_max = min(CRASH_DELAY_S_MAX, CRASH_DELAY_S * 2 ** (losses - SUSPECT_LOSSES))
        actual_s = (event.due or 0.0) - at
        if losses < SUSPECT_LOSSES or not 0 < actual_s <= delay_s_max + ROUNDING_S:
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
            raise self.make_violation(f"{name} restarts at once although it crashed workers")
        run = execution.run(execution.graph.index[event.node], event.item)
        if (
            not self.truth.plan.is_fault_free
            or run is None
            or run.due is None
            or run.wait not in _TIMED_WAITS
        ):
            return
        if at - run.due > LATE_S_MAX:
            raise self.make_violation(f"{name} continues {at - run.due:.3f} s late")
