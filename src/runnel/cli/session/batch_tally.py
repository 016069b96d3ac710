"""Counts the results of a batch, and computes its pace."""

from bisect import insort
from collections import Counter
from collections.abc import Mapping

from runnel.cli.render.text import HOUR_S
from runnel.client.batch import BatchOutcome
from runnel.core.ids import ExecutionId
from runnel.core.values import Json


class BatchTally:
    """Counts the results of a batch, and computes the documents per hour.

    `waiting` has the signal that each waiting execution waits for; the feeder updates it.
    """

    def __init__(self, total: int, *, started_at: float) -> None:
        self.total = total
        self.started_at = started_at
        self.done_earlier = 0
        self.states: Counter[str] = Counter()
        self.failures: list[BatchOutcome] = []
        self.waiting: Mapping[ExecutionId, str] = {}
        self._took_s: list[float] = []

    def add(self, outcome: BatchOutcome) -> None:
        self.states[outcome.summary.status.value] += 1
        if not outcome.is_completed:
            self.failures.append(outcome)
        if outcome.is_from_earlier_run:
            self.done_earlier += 1
        else:
            insort(self._took_s, outcome.took_s)

    @property
    def done(self) -> int:
        return self.states.total()

    @property
    def done_now(self) -> int:
        return len(self._took_s)

    def per_hour(self, now: float) -> float:
        """Returns the documents per hour that this command finishes; 0 before the first."""
        return HOUR_S * self.done_now / max(1e-9, now - self.started_at)

    def remaining_s(self, now: float) -> float | None:
        """Returns the estimated seconds until each document has ended or waits for a signal.

        Returns None if there is no estimate: before the first result, and if all other documents
        wait for a signal.
        """
        waiting = len(self.waiting)
        passed, left = self.done_now + waiting, self.total - self.done - waiting
        if not passed or (waiting and not left):
            return None
        return left * (now - self.started_at) / passed

    def quantile_s(self, share: float) -> float | None:
        """Returns the duration that this share of the executions did not exceed."""
        if not self._took_s:
            return None
        return self._took_s[min(self.done_now - 1, int(share * self.done_now))]

    def to_document(self, name: str, now: float) -> dict[str, Json]:
        return {
            "batch": name,
            "documents": self.total,
            **{state.lower(): self.states[state] for state in ("COMPLETED", "FAILED", "CANCELLED")},
            "unfinished": self.total - self.done,
            "waiting": len(self.waiting),
            "done_before": self.done_earlier,
            "took_s": round(now - self.started_at, 3),
            "documents_per_hour": round(self.per_hour(now)),
            "p50_s": _round_seconds(self.quantile_s(0.5)),
            "p95_s": _round_seconds(self.quantile_s(0.95)),
        }


def _round_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
