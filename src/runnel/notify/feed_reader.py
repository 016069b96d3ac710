"""Reads the store's feed of changes once, for all listeners of a process."""

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
    """A buffer of the feed's pages for one listener, which the feed reader fills.

    The subscription buffers up to 5,000 changes. A listener that reads too slowly gets a page with
    `has_gap`. `position` is the position after the last page that `next` has returned. A listener
    that starts at an earlier position reads the feed itself until it has caught up with the feed
    reader.
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
        """Sets the position at which the pages of the feed reader begin."""
        self._start_position = position
        if not self._is_catching_up:
            self.position = position
        self._arrived.set()

    async def wait_until_started(self) -> None:
        """Waits until the feed reader knows its position."""
        while self._start_position is None:
            await self._arrived.wait()

    def put(self, page: FeedPage) -> None:
        """Buffers a page.

        The first page of a new feed reader has no changes, only the reader's first position.
        """
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
        """Returns the next page, or a page without changes if none arrives within `wait_s`.

        A cancelled call loses no change. A closed subscription does not wait.
        """
        deadline = self._clock.monotonic() + wait_s
        while True:
            self._arrived.clear()
            page = await self._read_missed() if self._is_catching_up else self._take_page()
            if page is not None:
                self.position = page.position
                return page
            remaining_s = 0.0 if self._is_closed else deadline - self._clock.monotonic()
            if not await self._clock.wait(self._arrived, remaining_s):
                return FeedPage(changes=(), position=self.position)

    def close(self) -> None:
        """Ends a waiting call of `next`; later calls do not wait."""
        self._is_closed = True
        self._arrived.set()

    def take_all(self) -> Sequence[FeedPage]:
        """Returns all buffered pages.

        The list is empty while the subscription still reads earlier pages itself.
        """
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
        """Drops the buffered pages up to a position.

        Returns True if the buffer contained the position.
        """
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


class FeedReader:
    """Reads the feed as long as the process has listeners; retries if the store can't be reached.

    A listener misses no change that is stored after it began to listen. After an interruption, each
    subscription gets a page with `has_gap`, and the events of all other listeners are set.
    """

    def __init__(self, feed: Feed, clock: Clock, telemetry: Telemetry) -> None:
        self._feed = feed
        self._clock = clock
        self._store_retry = StoreRetry(clock, telemetry, "feed reader")
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
        """Sets the event, inside the block, whenever the execution may have changed.

        With `ends_only`, the event is set only when the execution may have become final. The caller
        reads the store once inside the block, and again each time the event was set. The caller
        clears the event before each read.
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
        """Opens a subscription to all changes from now on, or to the changes after `after`."""
        subscription = FeedSubscription(self._feed, self._clock, after)
        async with self.subscribe(subscription.put):
            if self._position is not None:
                subscription.start_at(self._position)
            await subscription.wait_until_started()
            yield subscription

    @asynccontextmanager
    async def subscribe(self, callback: PageCallback) -> AsyncIterator[None]:
        """Calls `callback` with each page, on the event loop; the callback must not block.

        The first page after the start of the reader has `has_gap` set and the reader's first
        position.
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
            # The task is not in a TaskGroup, because listeners leave in any order and the last one
            # ends the task.
            self._reader = asyncio.get_running_loop().create_task(self._run_reader())
        try:
            yield
        except BaseException:
            await self._release_reader()
            raise
        ended = await self._release_reader()
        if ended is not None and not ended.cancelled():
            ended.result()  # raises the error that ended the reader; a StoreError never ends it

    async def _release_reader(self) -> "asyncio.Task[None] | None":
        """Cancels and returns the reader task if no listener remains.

        Returns None if one remains.
        """
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
        for callback in tuple(self._callbacks):
            callback(page)
