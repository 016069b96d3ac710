"""The change feed in the database file.

Readers get the writes of their own process at once, and the writes of other processes within 0.1 s.
"""

import asyncio
import sqlite3
from collections.abc import Sequence

from runnel.backends.feed_log import (
    ENTRIES_MAX,
    PAGE_ENTRIES_MAX,
    FeedEntry,
    build_end_position,
    build_feed_page,
    parse_position,
)
from runnel.backends.sqlite.database import SQL, SqliteReader
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage, FeedPosition

# The interval of polls for commits of other processes. One poll is a query by key and takes about
# 10 µs.
POLL_INTERVAL_S = 0.1
# The feed is trimmed only once per this number of entries, because one delete takes as long as many
# inserts.
TRIM_INTERVAL_ENTRIES = 500


def write_feed_entries(db: sqlite3.Connection, texts: Sequence[str]) -> None:
    """Writes the entries in the same transaction as the changes that they describe."""
    for text in texts:
        last = db.execute(SQL["add_feed_entry"], (text,)).lastrowid or 0
        if last % TRIM_INTERVAL_ENTRIES == 0:
            db.execute(SQL["trim_feed"], (last - ENTRIES_MAX,))


class SqliteFeed:
    """Implements the Feed port. `arrived` is set after each write of this process."""

    def __init__(self, reader: SqliteReader, clock: Clock) -> None:
        self.arrived = asyncio.Event()
        self._reader = reader
        self._clock = clock

    async def end(self) -> FeedPosition:
        return self._read_end()

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        deadline = self._clock.monotonic() + wait_s
        while True:
            # The event is cleared before the read, because a writer thread may commit right after
            # the read.
            self.arrived.clear()
            page = self._read_page(after, limit)
            remaining_s = deadline - self._clock.monotonic()
            if page.changes or page.has_gap or remaining_s <= 0:
                return page
            await self._clock.wait(self.arrived, min(remaining_s, POLL_INTERVAL_S))

    def _read_end(self) -> FeedPosition:
        ((number, text),) = self._reader.rows("last_feed_entry")
        return build_end_position(FeedEntry(str(number), text))

    def _read_page(self, after: FeedPosition, limit: int) -> FeedPage:
        offset = parse_position(after)
        if offset is not None and offset.entry_id.isdecimal():
            rows = self._reader.rows(
                "list_feed", (int(offset.entry_id), min(limit, PAGE_ENTRIES_MAX) + 1)
            )
            entries = [FeedEntry(str(number), text) for number, text in rows]
            page = build_feed_page(after, offset, entries, limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=self._read_end(), has_gap=True)
