"""When nothing goes wrong, nothing is done in vain: no task is lost, no code runs again."""

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
from runnel.core.ids import NO_ITEM, Token
from runnel.core.workflow import CORE_HANDLERS
from simulation.commit_log import Check, Given, Truth

_ENDS = (NodeCompleted, NodeFailed, NodeSkipped)
_IN_VAIN = ("lost_tasks", "refused_commits", "takeovers")


class Waste(Check):
    name = "waste"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._begun: Counter[tuple[str, str, int]] = Counter()
        self._wanted: Counter[tuple[str, str, int]] = Counter()
        self._cancelled: set[tuple[str, str, int]] = set()
        self._stopped: Counter[str | None] = Counter()
        """Those of `_cancelled` by the rate limit that they have."""

    def happening(self, execution: Execution, event: Event, at: float) -> None:
        """Each report is the end of one run of code; of a failed item, its worker is not kept."""
        if isinstance(event, NodeCancelled):
            self._cancelled.add((execution.id, event.node, event.item))
            self._stopped[execution.graph.node(event.node).node.resource_tag] += 1
        is_item = isinstance(event, NodeFailed) and event.item != NO_ITEM
        is_report = is_item or (isinstance(event, _ENDS) and event.worker)
        if is_report or isinstance(event, RetryPlanned):
            node = execution.graph.node(event.node).node  # type: ignore[union-attr]  # both have one
            if node.handler not in CORE_HANDLERS:
                self._wanted[execution.id, node.id, event.item] += 1  # type: ignore[union-attr]  # as above

    def code_begins(self, worker: str, token: Token, given: Given) -> None:
        self._begun[token.execution_id, token.node_id, token.item] += 1

    def ended(self) -> None:
        if not self.truth.plan.is_calm:
            return
        for name in _IN_VAIN:
            if count := getattr(self.truth.tally, name):
                raise self.broken(f"nothing went wrong, and there are {count} {name}")
        rates = self.truth.rates
        for tag, begun in rates.begun.items():
            if rates.given(tag) > begun + self._stopped[tag]:
                raise self.broken(f"{rates.given(tag)} tokens of '{tag}' for {begun} runs of code")
        for place, wanted in self._wanted.items():
            begun = self._begun[place]
            if begun != wanted and not (begun == wanted + 1 and place in self._cancelled):
                raise self.broken(f"{place} ran {begun} times for {wanted} reports")
