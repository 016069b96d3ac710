"""How far a batch is, how fast, and what became of its documents."""

from bisect import insort
from collections import Counter

import msgspec

from runnel.cli.batches.documents import Document
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState
from runnel.ports.store import Header

HOUR_S = 3_600


class Outcome(msgspec.Struct, frozen=True):
    """`is_earlier`: it was over before this command began."""

    document: Document
    header: Header
    is_earlier: bool = False

    @property
    def is_completed(self) -> bool:
        return self.header.state is ExecutionState.COMPLETED

    @property
    def took_s(self) -> float:
        header = self.header
        return (header.finished_at or 0.0) - (header.started_at or header.finished_at or 0.0)


class Tally:
    def __init__(self, total: int, *, began_at: float) -> None:
        self.total = total
        self.began_at = began_at
        self.earlier = 0
        self.states: Counter[str] = Counter()
        self.failures: list[Outcome] = []
        self._took_s: list[float] = []

    def add(self, outcome: Outcome) -> None:
        self.states[outcome.header.state.value] += 1
        if not outcome.is_completed:
            self.failures.append(outcome)
        if outcome.is_earlier:
            self.earlier += 1
        else:
            insort(self._took_s, outcome.took_s)

    @property
    def done(self) -> int:
        return self.states.total()

    @property
    def done_now(self) -> int:
        return len(self._took_s)

    def per_hour(self, now: float) -> float:
        """Of what this command has seen to; 0 before the first."""
        return HOUR_S * self.done_now / max(1e-9, now - self.began_at)

    def left_s(self, now: float) -> float | None:
        """None before anything is known about the pace."""
        pace = self.per_hour(now)
        return None if not self.done_now else HOUR_S * (self.total - self.done) / pace

    def quantile_s(self, share: float) -> float | None:
        """The time from start to end within which this share of the executions was over."""
        if not self._took_s:
            return None
        return self._took_s[min(self.done_now - 1, int(share * self.done_now))]

    def document(self, name: str, now: float) -> dict[str, Json]:
        return {
            "batch": name,
            "documents": self.total,
            **{state.lower(): self.states[state] for state in ("COMPLETED", "FAILED", "CANCELLED")},
            "unfinished": self.total - self.done,
            "done_before": self.earlier,
            "took_s": round(now - self.began_at, 3),
            "documents_per_hour": round(self.per_hour(now)),
            "p50_s": _rounded(self.quantile_s(0.5)),
            "p95_s": _rounded(self.quantile_s(0.95)),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
