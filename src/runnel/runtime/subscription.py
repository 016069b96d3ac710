"""All changes for one listener: handed on by a reader that many share, and bounded."""

import asyncio
from collections import deque
from collections.abc import Sequence

from runnel.ports.clock import Clock
from runnel.ports.feed import Feed, FeedPage, FeedPosition

HELD_MAX = 5_000
READ_AT_ONCE = 1_000
NOWHERE = FeedPosition("")


class Subscription:
    """Keeps up to 5,000 changes that were not taken: who is slower than that gets a gap.

    `position` is behind the last page that `next` has given. A listener that has been away reads by
    itself until it has reached the others.
    """

    def __init__(self, feed: Feed, clock: Clock, after: FeedPosition | None) -> None:
        self._feed = feed
        self._clock = clock
        self._is_behind = after is not None
        self.position = NOWHERE if after is None else after
        self._joined: FeedPosition | None = None
        self._pages: deque[FeedPage] = deque()
        self._held = 0
        self._arrived = asyncio.Event()
        self._is_closed = False

    def join(self, position: FeedPosition) -> None:
        """The pages that are put begin there."""
        self._joined = position
        if not self._is_behind:
            self.position = position
        self._arrived.set()

    async def joined(self) -> None:
        """Until the reader knows where it is."""
        while self._joined is None:
            await self._arrived.wait()

    def put(self, page: FeedPage) -> None:
        """The first page of a reader says where it begins, and is no news to who waited for it."""
        if self._joined is None:
            self.join(page.position)
            return
        if self._held + len(page.changes) > HELD_MAX:
            self._pages.clear()
            self._held = 0
            page = FeedPage(changes=(), position=page.position, has_gap=True)
        self._pages.append(page)
        self._held += len(page.changes)
        self._arrived.set()

    async def next(self, *, wait_s: float) -> FeedPage:
        """What comes next, waiting at most `wait_s`; a page without changes when that is nothing.

        Cancelling the call loses nothing. Once it is closed, nobody waits.
        """
        deadline = self._clock.monotonic() + wait_s
        while True:
            self._arrived.clear()
            page = await self._read() if self._is_behind else self._take()
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
        pages = [] if self._is_behind else list(self._pages)
        if pages:
            self._pages.clear()
            self._held = 0
            self.position = pages[-1].position
        return pages

    async def _read(self) -> FeedPage | None:
        page = await self._feed.read(self.position, limit=READ_AT_ONCE, wait_s=0)
        self._is_behind = not self._meets(page.position)
        if page.changes or page.has_gap:
            return page
        return None if self._is_behind else self._take()

    def _meets(self, position: FeedPosition) -> bool:
        """Whether the pages go on behind it; those that are before it are dropped then."""
        if position == self._joined:
            return True
        for number, page in enumerate(self._pages):
            found = [each.position for each in page.changes]
            if page.has_gap or position in found:
                for _ in range(number):
                    self._drop()
                if not page.has_gap:
                    self._drop()
                    rest = page.changes[found.index(position) + 1 :]
                    if rest:
                        self._pages.appendleft(FeedPage(changes=rest, position=page.position))
                        self._held += len(rest)
                return True
        return False

    def _take(self) -> FeedPage | None:
        return self._drop() if self._pages else None

    def _drop(self) -> FeedPage:
        page = self._pages.popleft()
        self._held -= len(page.changes)
        return page
