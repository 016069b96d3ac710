"""The change feed of a store in the memory of one process."""

import asyncio
from collections.abc import Sequence

from runnel.backends.feed_log import (
    ENTRIES_MAX,
    GAP_MARKER,
    PAGE_ENTRIES_MAX,
    FeedEntry,
    build_end_position,
    build_feed_page,
    parse_position,
)
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage, FeedPosition

# The log is trimmed in blocks, because each trim moves all remaining entries.
TRIM_BATCH_SIZE = 1_000


class ChangeLog:
    """The change feed of a store in memory, which holds the last entries, numbered in order.

    `incarnation` is an id that distinguishes this log from the log of another store.
    """

    def __init__(self, incarnation: str) -> None:
        self.arrived = asyncio.Event()
        self._texts = [GAP_MARKER + incarnation]
        self._first = 1

    def add(self, texts: Sequence[str]) -> None:
        if texts:
            self._texts += texts
            self.arrived.set()
            if len(self._texts) > ENTRIES_MAX + TRIM_BATCH_SIZE:
                self.trim(len(self._texts) - ENTRIES_MAX)

    def trim(self, count: int) -> None:
        """Removes the oldest `count` entries, but never the last entry."""
        removed = min(count, len(self._texts) - 1)
        del self._texts[:removed]
        self._first += removed

    def get_last(self) -> FeedEntry:
        return FeedEntry(str(self._first + len(self._texts) - 1), self._texts[-1])

    def read_from(self, name: str) -> list[FeedEntry]:
        """Returns one page of entries, starting with the entry `name`; empty if that entry is
        missing.
        """
        index = int(name) - self._first if name.isdecimal() else -1
        if index < 0:
            return []
        texts = self._texts[index : index + PAGE_ENTRIES_MAX]
        return [FeedEntry(str(number), text) for number, text in enumerate(texts, start=int(name))]

    def copy(self) -> "ChangeLog":
        """Returns a copy without the waiting readers, for a store that can be rolled back."""
        copied = ChangeLog("")
        copied._texts = list(self._texts)
        copied._first = self._first
        return copied


class LocalFeed:
    def __init__(self, log: ChangeLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def end(self) -> FeedPosition:
        return build_end_position(self._log.get_last())

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        deadline = self._clock.monotonic() + wait_s
        while True:
            page = self._read_page(after, limit)
            left_s = deadline - self._clock.monotonic()
            if page.changes or page.has_gap or left_s <= 0:
                return page
            self._log.arrived.clear()
            await self._clock.wait(self._log.arrived, left_s)

    def _read_page(self, after: FeedPosition, limit: int) -> FeedPage:
        offset = parse_position(after)
        if offset is not None:
            page = build_feed_page(after, offset, self._log.read_from(offset.entry_id), limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=build_end_position(self._log.get_last()), has_gap=True)
