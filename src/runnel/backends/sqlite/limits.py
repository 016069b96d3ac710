"""Concurrency keys of this process: in memory, because their holders die with it.

They last while the process owns any partition, and are forgotten when it owns none: what holds or
waits then belongs to whoever takes the partitions over.
"""

from collections.abc import Sequence

from runnel.core.commands import LIMIT_PREFIX
from runnel.ports.store import Commit


def is_limit(aggregate_id: str) -> bool:
    return aggregate_id.startswith(LIMIT_PREFIX)


class Limits:
    def __init__(self) -> None:
        self._entries: dict[str, list[bytes]] = {}

    def clear(self) -> None:
        self._entries.clear()

    def load(self, aggregate_id: str) -> Sequence[bytes]:
        return tuple(self._entries.get(aggregate_id, ()))

    def apply(self, commit: Commit) -> None:
        for history in commit.histories:
            if is_limit(history.aggregate_id):
                self._entries.setdefault(history.aggregate_id, []).append(history.entry)
        for aggregate_id in commit.closed:
            self._entries.pop(aggregate_id, None)
