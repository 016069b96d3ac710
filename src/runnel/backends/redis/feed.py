"""The feed of a Redis server: a stream with one entry for each commit."""

from collections.abc import Sequence
from typing import Any

from runnel.backends.feed_log import BREAK, ENTRIES_AT_ONCE, Entry, Place, end_of, page_of, place_of
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys
from runnel.ports.feed import FeedPage, FeedPosition

FIELD = "c"


class RedisFeed:
    """Read from the entry of the position on, and not behind it: it must still be there."""

    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._key = keys.feed

    async def end(self) -> FeedPosition:
        """Begins the feed of an empty server: a position has an entry."""
        while True:
            last = await self._lines.call("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            if last:
                return end_of(_entries(last)[0])
            await self._lines.call("XADD", self._key, "*", FIELD, BREAK)

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        place = place_of(after)
        page = await self._page(after, place, limit)
        if place is None or page.changes or page.has_gap or wait_s <= 0:
            return page
        is_news = await self._lines.wait(
            "XREAD", "COUNT", 1, "STREAMS", self._key, place.name, wait_s=wait_s
        )
        return await self._page(after, place, limit) if is_news else page

    async def _page(self, after: FeedPosition, place: Place | None, limit: int) -> FeedPage:
        if place is not None:
            count = min(limit, ENTRIES_AT_ONCE) + 1
            found = await self._lines.call("XRANGE", self._key, place.name, "+", "COUNT", count)
            page = page_of(after, place, _entries(found), limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=await self.end(), has_gap=True)


def _entries(stream: Sequence[Any]) -> list[Entry]:
    return [Entry(name.decode(), fields[1].decode()) for name, fields in stream]
