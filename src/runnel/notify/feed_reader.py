"""One reader of the store's feed, shared by all listeners of this process."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.engine.store_retry import StoreRetry
from runnel.ports.clock import Clock
from runnel.ports.feed import Feed, FeedPage, FeedPosition
from runnel.ports.telemetry import Telemetry

BUFFERED_CHANGES_MAX = 5_000
CATCH_UP_PAGE_SIZE = 1_000
NO_POSITION = FeedPosition("")


class FeedSubscription:
    """The changes for one listener, passed on by the shared reader.

    Up to 5,000 changes are kept until they are taken: a slower listener gets a gap.

    `position` is behind the last page that `next` has given. A listener that has been away reads by
    itself until it has reached the others.
    """

    def __init__(self, feed: Feed, clock: Clock, after: FeedPosition | None) -> None:
        self._feed = feed
        self._clock = clock
        self._is_catching_up = after is not None
        self.position = NO_POSITION if after is None else after
        self._start_position: FeedPosition | None = None
        self._pages: deque[FeedPage] = deque()
        self._buffered = 0
        self._arrived = asyncio.Event()
        self._is_closed = False

    def start_at(self, position: FeedPosition) -> None:
        """The pages that are put begin there."""
        self._start_position = position
        if not self._is_catching_up:
            self.position = position
        self._arrived.set()

    async def wait_until_started(self) -> None:
        """Until the reader knows where it is."""
        while self._start_position is None:
            await self._arrived.wait()

    def put(self, page: FeedPage) -> None:
        """The first page of a reader says where it begins, and is no news to who waited for it."""
        if self._start_position is None:
            self.start_at(page.position)
            return
        if self._buffered + len(page.changes) > BUFFERED_CHANGES_MAX:
            self._pages.clear()
            self._buffered = 0
            page = FeedPage(changes=(), position=page.position, has_gap=True)
        self._pages.append(page)
        self._buffered += len(page.changes)
        self._arrived.set()

    async def next(self, *, wait_s: float) -> FeedPage:
        """What comes next, waiting at most `wait_s`; a page without changes when that is nothing.

        Cancelling the call loses nothing. Once it is closed, nobody waits.
        """
        deadline = self._clock.monotonic() + wait_s
        while True:
            self._arrived.clear()
            page = await self._read_missed() if self._is_catching_up else self._take_page()
            if page is not None:
                self.position = page.position
                return page
            left_s = 0.0 if self._is_closed else deadline - self._clock.monotonic()
            if not await self._clock.wait(self._arrived, left_s):
                return FeedPage(changes=(), position=self.position)

    def close(self) -> None:
        """Nobody will wait for more: who does so now is not kept waiting."""
        self._is_closed = True
        self._arrived.set()

    def take_all(self) -> Sequence[FeedPage]:
        """What has come by now; nothing while a listener that has been away reads by itself."""
        pages = [] if self._is_catching_up else list(self._pages)
        if pages:
            self._pages.clear()
            self._buffered = 0
            self.position = pages[-1].position
        return pages

    async def _read_missed(self) -> FeedPage | None:
        page = await self._feed.read(self.position, limit=CATCH_UP_PAGE_SIZE, wait_s=0)
        self._is_catching_up = not self._align_pages(page.position)
        if page.changes or page.has_gap:
            return page
        return None if self._is_catching_up else self._take_page()

    def _align_pages(self, position: FeedPosition) -> bool:
        """Whether the pages go on behind it; those that are before it are dropped then."""
        if position == self._start_position:
            return True
        for number, page in enumerate(self._pages):
            positions = [change.position for change in page.changes]
            if page.has_gap or position in positions:
                for _ in range(number):
                    self._pop_page()
                if not page.has_gap:
                    self._pop_page()
                    later = page.changes[positions.index(position) + 1 :]
                    if later:
                        self._pages.appendleft(FeedPage(changes=later, position=page.position))
                        self._buffered += len(later)
                return True
        return False

    def _take_page(self) -> FeedPage | None:
        return self._pop_page() if self._pages else None

    def _pop_page(self) -> FeedPage:
        page = self._pages.popleft()
        self._buffered -= len(page.changes)
        return page


PAGE_SIZE = 1_000
READ_WAIT_S = 30.0

PageCallback: TypeAlias = Callable[[FeedPage], None]


class ExecutionListener(msgspec.Struct, frozen=True, eq=False):
    wakeup: asyncio.Event
    ends_only: bool


class FeedBroadcaster:
    """Reads only while somebody listens, and goes on when a store that was away is back.

    Nobody misses what was stored after it began to listen. Whoever may have missed something is
    told so: with a gap, or by being woken for nothing.
    """

    def __init__(self, feed: Feed, clock: Clock, telemetry: Telemetry) -> None:
        self._feed = feed
        self._clock = clock
        self._store_retry = StoreRetry(clock, telemetry, "newsroom")
        self._listeners: dict[str, list[ExecutionListener]] = {}
        self._callbacks: list[PageCallback] = []
        self._users = 0
        self._reader: asyncio.Task[None] | None = None
        self._position: FeedPosition | None = None

    @asynccontextmanager
    async def listen(
        self,
        execution_id: ExecutionId,
        wakeup: asyncio.Event | None = None,
        *,
        ends_only: bool = False,
    ) -> AsyncIterator[asyncio.Event]:
        """The event is set whenever something of the execution may have changed.

        With `ends_only`, whenever it may have become final. Look at the store after this has begun,
        and after each time the event was set; clear it before the look.
        """
        listener = ExecutionListener(wakeup or asyncio.Event(), ends_only)
        self._listeners.setdefault(execution_id, []).append(listener)
        try:
            async with self._hold_reader():
                yield listener.wakeup
        finally:
            remaining = [other for other in self._listeners[execution_id] if other is not listener]
            if remaining:
                self._listeners[execution_id] = remaining
            else:
                del self._listeners[execution_id]

    @asynccontextmanager
    async def open_subscription(
        self, *, after: FeedPosition | None = None
    ) -> AsyncIterator[FeedSubscription]:
        """All changes from now on, or behind a position that somebody was told earlier."""
        subscription = FeedSubscription(self._feed, self._clock, after)
        async with self.subscribe(subscription.put):
            if self._position is not None:
                subscription.start_at(self._position)
            await subscription.wait_until_started()
            yield subscription

    @asynccontextmanager
    async def subscribe(self, callback: PageCallback) -> AsyncIterator[None]:
        """Calls `ear` with each page, on the loop; it must not block.

        The first page of a reader that has just begun has a gap, and its position.
        """
        self._callbacks.append(callback)
        try:
            async with self._hold_reader():
                yield
        finally:
            self._callbacks.remove(callback)

    @asynccontextmanager
    async def _hold_reader(self) -> AsyncIterator[None]:
        self._users += 1
        if self._reader is None or self._reader.done():
            # Not in a group: it serves listeners of whom each may leave; the last one ends it.
            self._reader = asyncio.get_running_loop().create_task(self._run_reader())
        try:
            yield
        except BaseException:
            await self._release_reader()
            raise
        ended = await self._release_reader()
        if ended is not None and not ended.cancelled():
            ended.result()  # raises what has ended it, which nothing that a store does should

    async def _release_reader(self) -> "asyncio.Task[None] | None":
        """The reader, if nobody needs it any more: it has ended then."""
        self._users -= 1
        if self._users or self._reader is None:
            return None
        reader, self._reader, self._position = self._reader, None, None
        reader.cancel()
        await asyncio.wait([reader])
        return reader

    async def _run_reader(self) -> None:
        position = await self._store_retry.run(self._feed.end, "feed")
        self._publish(FeedPage(changes=(), position=position, has_gap=True))
        while True:
            read = partial(self._feed.read, position, limit=PAGE_SIZE, wait_s=READ_WAIT_S)
            page = await self._store_retry.run(read, "feed")
            position = page.position
            if page.changes or page.has_gap:
                self._publish(page)

    def _publish(self, page: FeedPage) -> None:
        self._position = page.position
        if page.has_gap:
            for listeners in self._listeners.values():
                for listener in listeners:
                    listener.wakeup.set()
        for change in page.changes:
            for listener in self._listeners.get(change.execution_id, ()):
                if not listener.ends_only or change.state in FINAL_EXECUTION_STATES:
                    listener.wakeup.set()
        for ear in tuple(self._callbacks):
            ear(page)
