"""Counts the engine features that a run uses, from its commits."""

from collections import Counter

from runnel.core.events import (
    AnyEvent,
    Event,
    ExecutionClosing,
    ExecutionCreated,
    ExecutionStarted,
    LimitHeld,
    LimitQueued,
    MapStarted,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
    RetryPlanned,
    SignalConsumed,
    SlaMissed,
    Wait,
)
from runnel.core.execution import Execution
from runnel.core.graph import CompiledNode
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState
from runnel.core.workflow import WAIT_FOR_SIGNAL
from simulation.checks.expected import CRASH_LOOP, TIMED_OUT
from simulation.commit_log import CommitStep, InvariantCheck
from simulation.faults import Feature


class FeatureCounter(InvariantCheck):
    """Counts the engine features that commits use, including commits that a rollback loses."""

    name = "features"

    def on_commit(self, step: CommitStep) -> None:
        used = self.truth.tally.features
        used[Feature.DEAD_LETTER] += len(step.commit.dead_letters)
        queued = {event.holder for _, event in step.events if isinstance(event, LimitQueued)}
        for id_, event in step.events:
            if isinstance(event, LimitHeld):
                used[Feature.KEY_WAIT] += event.holder not in queued
            elif isinstance(event, ExecutionCreated):
                used[Feature.CHILD] += event.parent is not None
            elif id_ in self.truth.executions:
                self._count_event(used, self.truth.executions[id_], event)

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        waits = at > self.truth.server.clock.monotonic()
        self.truth.tally.features[Feature.RATE_PARK] += waits

    def on_end(self) -> None:
        self.truth.tally.features[Feature.FAULT_FREE] += self.truth.plan.is_fault_free

    def _count_event(self, used: Counter[Feature], execution: Execution, event: AnyEvent) -> None:
        match event:
            case ExecutionClosing():
                _count_closing(used, event)
            case ExecutionStarted():
                order = self.truth.orders.get(execution.id)
                used[Feature.HELD_START] += order is not None and order.start_at is not None
            case SlaMissed():
                used[Feature.SLA] += 1
            case NodeSkipped():
                is_own = event.reason is SkipReason.BY_ITSELF
                used[Feature.SKIP_BY_ITSELF if is_own else Feature.SKIP] += 1
            case SignalConsumed():
                used[Feature.SIGNAL] += 1
            case NodeQueued() | NodeWaits() | MapStarted() | RetryPlanned():
                node = execution.graph.nodes[execution.graph.index[event.node]]
                _count_started(used, node, event)
            case NodeCompleted() | NodeFailed():
                node = execution.graph.nodes[execution.graph.index[event.node]]
                _count_settled(used, node, event)


def _count_closing(used: Counter[Feature], event: ExecutionClosing) -> None:
    used[Feature.CANCEL] += event.outcome is ExecutionState.CANCELLED
    used[Feature.FORCED_CANCEL] += event.is_abrupt
    used[Feature.TIMEOUT] += event.error is not None and event.error.type == TIMED_OUT


def _count_started(used: Counter[Feature], compiled: CompiledNode, event: Event) -> None:
    match event:
        case MapStarted():
            used[Feature.MAP] += 1
            used[Feature.SHARED_VALUE] += len(event.shared)
            used[Feature.MAP_OF_CHILDREN] += compiled.node.child is not None
        case RetryPlanned():
            used[Feature.RETRY] += 1
            used[Feature.CHILD_RETRY] += compiled.node.child is not None
        case NodeWaits():
            used[Feature.RATE_WAIT] += event.wait is Wait.RATE_LIMIT
        case NodeQueued():
            is_join = len(compiled.parents) > 1 and event.attempt == 1 and event.item < 1
            used[Feature.JOIN] += is_join


def _count_settled(
    used: Counter[Feature], compiled: CompiledNode, event: NodeCompleted | NodeFailed
) -> None:
    if isinstance(event, NodeCompleted):
        used[Feature.OFFLOADED_VALUE] += event.output.blob is not None
        has_none = bytes(event.output.data) == b"null"
        used[Feature.SIGNAL_TIMEOUT] += compiled.node.handler == WAIT_FOR_SIGNAL and has_none
        return
    used[Feature.CRASH_LOOP] += event.error.type == CRASH_LOOP
    used[Feature.SIGNAL_TIMEOUT] += event.error.type == "SignalTimeout"
    used[Feature.EXHAUSTED] += event.error.type == "ConnectionError"
