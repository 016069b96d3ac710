"""The feed of a store in the memory of one process."""

import asyncio
from collections.abc import Sequence

from runnel.backends.feed_log import (
    BREAK,
    ENTRIES_AT_ONCE,
    ENTRIES_MAX,
    Entry,
    end_of,
    page_of,
    place_of,
)
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage, FeedPosition

# Cut as a block, because that moves all that is kept.
SLACK = 1_000


class ChangeLog:
    """The last entries, by number; `life` tells it from that of another store."""

    def __init__(self, life: str) -> None:
        self.arrived = asyncio.Event()
        self._texts = [BREAK + life]
        self._first = 1

    def add(self, texts: Sequence[str]) -> None:
        if texts:
            self._texts += texts
            self.arrived.set()
            if len(self._texts) > ENTRIES_MAX + SLACK:
                self.forget(len(self._texts) - ENTRIES_MAX)

    def forget(self, count: int) -> None:
        """The oldest ones; the last one stays."""
        gone = min(count, len(self._texts) - 1)
        del self._texts[:gone]
        self._first += gone

    def last(self) -> Entry:
        return Entry(str(self._first + len(self._texts) - 1), self._texts[-1])

    def entries_from(self, name: str) -> list[Entry]:
        """Some; none when that one is not there."""
        place = int(name) - self._first if name.isdecimal() else -1
        if place < 0:
            return []
        texts = self._texts[place : place + ENTRIES_AT_ONCE]
        return [Entry(str(number), text) for number, text in enumerate(texts, start=int(name))]

    def copy(self) -> "ChangeLog":
        """All that it knows, and nobody who waits: for a store that can be set back."""
        copied = ChangeLog("")
        copied._texts = list(self._texts)
        copied._first = self._first
        return copied


class LocalFeed:
    def __init__(self, log: ChangeLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def end(self) -> FeedPosition:
        return end_of(self._log.last())

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        deadline = self._clock.monotonic() + wait_s
        while True:
            page = self._page(after, limit)
            left_s = deadline - self._clock.monotonic()
            if page.changes or page.has_gap or left_s <= 0:
                return page
            self._log.arrived.clear()
            await self._clock.wait(self._log.arrived, left_s)

    def _page(self, after: FeedPosition, limit: int) -> FeedPage:
        place = place_of(after)
        if place is not None:
            page = page_of(after, place, self._log.entries_from(place.name), limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=end_of(self._log.last()), has_gap=True)
