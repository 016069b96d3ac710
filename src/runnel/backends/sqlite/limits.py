"""Concurrency keys of this process: in memory, because their holders die with it.

They last while the process owns any partition, and are forgotten when it owns none: what holds or
waits then belongs to whoever takes the partitions over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.core.codec import decode_entry, encode_entry
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.events import LimitEvent, LimitHeld, LimitQueued
from runnel.core.limit import replay_limit
from runnel.ports.store import Commit

# Below this a history is not worth folding.
FOLD_BYTES_MIN = 16_384


def is_limit(aggregate_id: str) -> bool:
    return aggregate_id.startswith(LIMIT_PREFIX)


class Limits:
    def __init__(self) -> None:
        self._histories: dict[str, _History] = {}

    def clear(self) -> None:
        self._histories.clear()

    def keys(self) -> list[str]:
        return [id_.removeprefix(LIMIT_PREFIX) for id_ in self._histories]

    def load(self, aggregate_id: str) -> Sequence[bytes]:
        found = self._histories.get(aggregate_id)
        return () if found is None else tuple(found.entries)

    def apply(self, commit: Commit) -> None:
        for history in commit.histories:
            if is_limit(history.aggregate_id):
                self._histories.setdefault(history.aggregate_id, _History()).add(history.entry)
        for aggregate_id in commit.closed:
            self._histories.pop(aggregate_id, None)


@dataclass(slots=True)
class _History:
    """Of a key that somebody always waits for, and that is therefore never closed."""

    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    folded_bytes: int = 0

    def add(self, entry: bytes) -> None:
        self.entries.append(entry)
        self.size_bytes += len(entry)
        if self.size_bytes > FOLD_BYTES_MIN + 2 * self.folded_bytes:
            self._fold()

    def _fold(self) -> None:
        """One entry that leads to the same holders and waiters, in the same order."""
        limit = replay_limit("", self.entries)
        events: list[LimitEvent] = [
            *(LimitHeld(holder=holder, limit=most) for holder, most in limit.holders.items()),
            *(LimitQueued(holder=holder, limit=most) for holder, most in limit.waiters.items()),
        ]
        self.entries = [encode_entry(decode_entry(self.entries[-1]).at, events)]
        self.size_bytes = self.folded_bytes = len(self.entries[0])
