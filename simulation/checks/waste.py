"""Checks that runs without faults waste no work: no task is lost, and no code runs twice."""

from collections import Counter

from runnel.core.events import (
    Event,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    RetryPlanned,
)
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.core.workflow import CORE_HANDLERS
from simulation.commit_log import GroundTruth, HandlerInvocation, InvariantCheck

_REPORT_EVENTS = (NodeCompleted, NodeFailed, NodeSkipped)
_WASTE_COUNTERS = ("lost_tasks", "refused_commits", "takeovers")


class WastedWorkCheck(InvariantCheck):
    name = "waste"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._started: Counter[tuple[str, str, int]] = Counter()
        self._reported: Counter[tuple[str, str, int]] = Counter()
        self._cancelled: set[tuple[str, str, int]] = set()
        self._cancelled_by_tag: Counter[str | None] = Counter()
        """The number of cancelled nodes and items per rate limit."""

    def on_event(self, execution: Execution, event: Event, at: float) -> None:
        """Counts the reports of each node or item: there is one report per run of code.

        The event of a failed item names no worker.
        """
        if isinstance(event, NodeCancelled):
            self._cancelled.add((execution.id, event.node, event.item))
            self._cancelled_by_tag[execution.graph.node(event.node).node.resource_tag] += 1
        is_item = isinstance(event, NodeFailed) and event.item != NO_ITEM
        is_report = is_item or (isinstance(event, _REPORT_EVENTS) and event.worker)
        if is_report or isinstance(event, RetryPlanned):
            node = execution.graph.node(event.node).node  # type: ignore[union-attr]  # both events have a node
            if node.handler not in CORE_HANDLERS:
                self._reported[execution.id, node.id, event.item] += 1  # type: ignore[union-attr]  # both events have an item

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: HandlerInvocation
    ) -> None:
        self._started[token.execution_id, token.node_id, token.item] += 1

    def on_end(self) -> None:
        if not self.truth.plan.is_fault_free:
            return
        for name in _WASTE_COUNTERS:
            if count := getattr(self.truth.tally, name):
                raise self.make_violation(f"there are {count} {name} in a run without faults")
        rates = self.truth.rates
        for tag, started in rates.started.items():
            if rates.count_issued(tag) > started + self._cancelled_by_tag[tag]:
                raise self.make_violation(
                    f"{rates.count_issued(tag)} tokens of '{tag}' for {started} runs of code"
                )
        for position, reports in self._reported.items():
            runs = self._started[position]
            if runs != reports and not (runs == reports + 1 and position in self._cancelled):
                raise self.make_violation(f"{position} ran {runs} times for {reports} reports")
