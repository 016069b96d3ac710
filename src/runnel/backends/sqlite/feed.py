"""The feed of a database file: what this process writes is told at once, others' a moment later."""

import asyncio
import sqlite3
from collections.abc import Sequence

from runnel.backends.feed_entries import (
    ENTRIES_AT_ONCE,
    ENTRIES_MAX,
    Entry,
    end_of,
    page_of,
    place_of,
)
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.reader import Reader
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage, FeedPosition

# How soon the commit of another process is seen: one look is a query by key, of 10 µs.
LOOK_S = 0.1
# A delete takes as long as many inserts.
TRIMMED_EVERY = 500


def write_entries(db: sqlite3.Connection, texts: Sequence[str]) -> None:
    """Within the transaction of what they tell."""
    for text in texts:
        last = db.execute(SQL["add_feed_entry"], (text,)).lastrowid or 0
        if last % TRIMMED_EVERY == 0:
            db.execute(SQL["trim_feed"], (last - ENTRIES_MAX,))


class SqliteFeed:
    """`arrived` is set when this process has written something."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self.arrived = asyncio.Event()
        self._reader = reader
        self._clock = clock

    async def end(self) -> FeedPosition:
        return self._end()

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        deadline = self._clock.monotonic() + wait_s
        while True:
            # Before the look: a writer in another thread may be done behind it.
            self.arrived.clear()
            page = self._page(after, limit)
            left_s = deadline - self._clock.monotonic()
            if page.changes or page.has_gap or left_s <= 0:
                return page
            await self._clock.wait(self.arrived, min(left_s, LOOK_S))

    def _end(self) -> FeedPosition:
        ((number, text),) = self._reader.rows("last_feed_entry")
        return end_of(Entry(str(number), text))

    def _page(self, after: FeedPosition, limit: int) -> FeedPage:
        place = place_of(after)
        if place is not None and place.name.isdecimal():
            rows = self._reader.rows(
                "list_feed", (int(place.name), min(limit, ENTRIES_AT_ONCE) + 1)
            )
            entries = [Entry(str(number), text) for number, text in rows]
            page = page_of(after, place, entries, limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=self._end(), has_gap=True)
