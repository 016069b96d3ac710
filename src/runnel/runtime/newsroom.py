"""One reader of the store's feed for all in this process who want to know what changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.engine.patience import Patience
from runnel.ports.clock import Clock
from runnel.ports.feed import Feed, FeedPage, FeedPosition
from runnel.ports.telemetry import Telemetry
from runnel.runtime.subscription import Subscription

PAGE = 1_000
WAIT_S = 30.0

Ear: TypeAlias = Callable[[FeedPage], None]


class Listener(msgspec.Struct, frozen=True, eq=False):
    news: asyncio.Event
    ends_only: bool


class Newsroom:
    """Reads only while somebody listens, and goes on when a store that was away is back.

    Nobody misses what was stored after it began to listen. Whoever may have missed something is
    told so: with a gap, or by being woken for nothing.
    """

    def __init__(self, feed: Feed, clock: Clock, telemetry: Telemetry) -> None:
        self._feed = feed
        self._clock = clock
        self._patience = Patience(clock, telemetry, "newsroom")
        self._listeners: dict[str, list[Listener]] = {}
        self._ears: list[Ear] = []
        self._users = 0
        self._reader: asyncio.Task[None] | None = None
        self._position: FeedPosition | None = None

    @asynccontextmanager
    async def listen(
        self,
        execution_id: ExecutionId,
        news: asyncio.Event | None = None,
        *,
        ends_only: bool = False,
    ) -> AsyncIterator[asyncio.Event]:
        """The event is set whenever something of the execution may have changed.

        With `ends_only`, whenever it may have become final. Look at the store after this has begun,
        and after each time the event was set; clear it before the look.
        """
        listener = Listener(news or asyncio.Event(), ends_only)
        self._listeners.setdefault(execution_id, []).append(listener)
        try:
            async with self._reading():
                yield listener.news
        finally:
            left = [each for each in self._listeners[execution_id] if each is not listener]
            if left:
                self._listeners[execution_id] = left
            else:
                del self._listeners[execution_id]

    @asynccontextmanager
    async def listen_for_end(
        self, execution_id: ExecutionId, news: asyncio.Event
    ) -> AsyncIterator[None]:
        async with self.listen(execution_id, news, ends_only=True):
            yield

    @asynccontextmanager
    async def listen_all(self, *, after: FeedPosition | None = None) -> AsyncIterator[Subscription]:
        """All changes from now on, or behind a position that somebody was told earlier."""
        subscription = Subscription(self._feed, self._clock, after)
        async with self.hear(subscription.put):
            if self._position is not None:
                subscription.join(self._position)
            await subscription.joined()
            yield subscription

    @asynccontextmanager
    async def hear(self, ear: Ear) -> AsyncIterator[None]:
        """Calls `ear` with each page, on the loop; it must not block.

        The first page of a reader that has just begun has a gap, and its position.
        """
        self._ears.append(ear)
        try:
            async with self._reading():
                yield
        finally:
            self._ears.remove(ear)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        self._users += 1
        if self._reader is None or self._reader.done():
            # Not in a group: it serves listeners of whom each may leave; the last one ends it.
            self._reader = asyncio.get_running_loop().create_task(self._read())
        try:
            yield
        except BaseException:
            await self._leave()
            raise
        ended = await self._leave()
        if ended is not None and not ended.cancelled():
            ended.result()  # raises what has ended it, which nothing that a store does should

    async def _leave(self) -> "asyncio.Task[None] | None":
        """The reader, if nobody needs it any more: it has ended then."""
        self._users -= 1
        if self._users or self._reader is None:
            return None
        reader, self._reader, self._position = self._reader, None, None
        reader.cancel()
        await asyncio.wait([reader])
        return reader

    async def _read(self) -> None:
        position = await self._patience.until_done(self._feed.end, "feed")
        self._tell(FeedPage(changes=(), position=position, has_gap=True))
        while True:
            read = partial(self._feed.read, position, limit=PAGE, wait_s=WAIT_S)
            page = await self._patience.until_done(read, "feed")
            position = page.position
            if page.changes or page.has_gap:
                self._tell(page)

    def _tell(self, page: FeedPage) -> None:
        self._position = page.position
        if page.has_gap:
            for listeners in self._listeners.values():
                for listener in listeners:
                    listener.news.set()
        for change in page.changes:
            for listener in self._listeners.get(change.execution_id, ()):
                if not listener.ends_only or change.state in EXECUTION_FINAL:
                    listener.news.set()
        for ear in tuple(self._ears):
            ear(page)
