"""The change feed of a Redis server: a stream with one entry per commit."""

from collections.abc import Sequence
from typing import Any

from runnel.backends.feed_log import (
    GAP_MARKER,
    PAGE_ENTRIES_MAX,
    FeedEntry,
    FeedOffset,
    build_end_position,
    build_feed_page,
    parse_position,
)
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames
from runnel.ports.feed import FeedPage, FeedPosition

ENTRY_FIELD = "c"


class RedisFeed:
    """Reads the feed, starting with the entry of the reader's position.

    Reads the entry of the position again to check that it still exists. If the entry is missing,
    the reader has missed changes.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._key = keys.feed

    async def end(self) -> FeedPosition:
        """Returns the position after the last entry.

        Adds an entry to an empty feed first, because a position refers to an entry.
        """
        while True:
            last = await self._pool.call("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            if last:
                return build_end_position(_decode_entries(last)[0])
            await self._pool.call("XADD", self._key, "*", ENTRY_FIELD, GAP_MARKER)

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        offset = parse_position(after)
        page = await self._read_page(after, offset, limit)
        if offset is None or page.changes or page.has_gap or wait_s <= 0:
            return page
        arrived = await self._pool.call_blocking(
            "XREAD", "COUNT", 1, "STREAMS", self._key, offset.entry_id, wait_s=wait_s
        )
        return await self._read_page(after, offset, limit) if arrived else page

    async def _read_page(
        self, after: FeedPosition, offset: FeedOffset | None, limit: int
    ) -> FeedPage:
        if offset is not None:
            count = min(limit, PAGE_ENTRIES_MAX) + 1
            stream = await self._pool.call(
                "XRANGE", self._key, offset.entry_id, "+", "COUNT", count
            )
            page = build_feed_page(after, offset, _decode_entries(stream), limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=await self.end(), has_gap=True)


def _decode_entries(stream: Sequence[Any]) -> list[FeedEntry]:
    return [FeedEntry(name.decode(), fields[1].decode()) for name, fields in stream]
