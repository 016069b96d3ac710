"""Checks that nothing happens too early: waits last until they are due, and due times
are correct.
"""

from runnel.core.events import (
    Event,
    ExecutionClosing,
    ExecutionStarted,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeWaits,
    RetryPlanned,
    SignalConsumed,
    SlaMissed,
    Wait,
)
from runnel.core.execution import Execution
from simulation.checks.expected import TIMED_OUT
from simulation.commit_log import ROUNDING_S, CommitStep, GroundTruth, InvariantCheck
from simulation.faults import Fault

_TIMED_WAITS = frozenset({Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT, Wait.SLEEP})
# Jitter extends a retry by up to half of its delay.
JITTER_FACTOR = 1.5


class TimerCheck(InvariantCheck):
    """Checks due times on the clock of the partition's current owner, because clocks differ."""

    name = "timers"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._signalled_nodes: set[tuple[str, str]] = set()

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        match event:
            case NodeQueued() | NodeCompleted() | NodeFailed():
                self._check_wait(execution, event, at)
            case RetryPlanned():
                self._check_retry(execution, event, at)
            case NodeWaits(wait=Wait.RATE_LIMIT, detail="rate limit"):
                if event.due is None or event.due <= at:
                    raise self.make_violation(
                        f"{execution.id}/{event.node} waits for a time that is already past"
                    )
            case SignalConsumed():
                self._signalled_nodes.add((execution.id, event.node))
            case ExecutionClosing(error=error) if error is not None and error.type == TIMED_OUT:
                self._check_deadline(execution, execution.graph.workflow.timeout_seconds, at)
            case SlaMissed():
                self._check_deadline(execution, execution.graph.workflow.sla_seconds, at)

    def on_commit(self, step: CommitStep) -> None:
        """Checks that a held execution does not start before its requested start time."""
        now = self.truth.server.clock.monotonic()
        for id_, event in step.events:
            order = self.truth.orders.get(id_) if isinstance(event, ExecutionStarted) else None
            if order is not None and order.start_at is not None and now < order.start_at:
                raise self.make_violation(f"{id_} starts {order.start_at - now:.3f} s too early")

    def _check_wait(
        self, execution: Execution, event: NodeQueued | NodeCompleted | NodeFailed, at: float
    ) -> None:
        run = execution.run(execution.graph.index[event.node], event.item)
        if run is None or run.due is None:
            return
        if run.wait in _TIMED_WAITS and at < run.due:
            early_s = run.due - at
            raise self.make_violation(
                f"{execution.id}/{event.node} continues {early_s:.3f} s too early"
            )
        is_unanswered = run.wait is Wait.SIGNAL and not self._has_signal(execution, event.node)
        if is_unanswered and at < run.due:
            raise self.make_violation(
                f"{execution.id}/{event.node} stops waiting for its signal too early"
            )

    def _has_signal(self, execution: Execution, node_id: str) -> bool:
        return (execution.id, node_id) in self._signalled_nodes

    def _check_retry(self, execution: Execution, event: RetryPlanned, at: float) -> None:
        index = execution.graph.index[event.node]
        policy, run = execution.graph.nodes[index].node.retry, execution.run(index, event.item)
        failures = 0 if run is None else run.failures
        delay_s = min(policy.max_delay, policy.initial_delay * policy.exponential_base**failures)
        actual_s = event.due - at
        if not delay_s - ROUNDING_S <= actual_s <= JITTER_FACTOR * delay_s + ROUNDING_S:
            name = f"{execution.id}/{event.node}"
            raise self.make_violation(
                f"{name} is retried after {actual_s:.3f} s instead of {delay_s:.3f} s"
            )

    def _check_deadline(self, execution: Execution, limit_s: float | None, at: float) -> None:
        due = (execution.started_at or 0.0) + (limit_s or 0.0)
        if limit_s is None or at < due - ROUNDING_S:
            raise self.make_violation(
                f"{execution.id} counts as late at {at:.3f}, its limit is {due:.3f}"
            )

    def on_end(self) -> None:
        """Checks that every SLA miss is recorded, in runs without clock skew."""
        if Fault.SKEW in self.truth.plan.faults:
            return
        for execution in self.truth.executions.values():
            sla_s = execution.graph.workflow.sla_seconds
            if sla_s is None or execution.started_at is None or execution.is_sla_missed:
                continue
            took_s = (execution.finished_at or 0.0) - execution.started_at
            if took_s > sla_s + ROUNDING_S:
                raise self.make_violation(
                    f"{execution.id} took {took_s:.1f} s without a recorded SLA miss"
                )
