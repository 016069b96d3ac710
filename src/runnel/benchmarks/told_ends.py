"""How executions end that other processes run: told by the feed, as a follower of all of them is.

One reader for all: a wait for each of 2,000 would be 4,000 looks at the store that is measured.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runnel.benchmarks.site import check_completed
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.errors import NotFoundError
from runnel.ports.feed import FeedPage
from runnel.runtime.look import Look

PAGE = 1_000
WAIT_S = 5.0
LOOKS_AT_ONCE = 50


class ToldEnds:
    """With `rest_s`, a moment is let pass after each page, so that the next one is larger: with 4
    slots, hearing of each commit by itself took 15 % of the processor time of a whole deployment.
    """

    def __init__(self, look: Look, rest_s: float) -> None:
        self._look = look
        self._rest_s = rest_s
        self._found: dict[str, tuple[float, ExecutionState]] = {}
        self._waiting: dict[str, asyncio.Future[tuple[float, ExecutionState]]] = {}

    async def ended(self, execution_id: ExecutionId) -> float:
        found = self._found.get(execution_id)
        if found is None:
            waiting = self._waiting.get(execution_id)
            if waiting is None:
                waiting = self._waiting[execution_id] = asyncio.get_running_loop().create_future()
            found = await waiting
        at, state = found
        check_completed(execution_id, state)
        return at

    @asynccontextmanager
    async def told(self) -> AsyncIterator["ToldEnds"]:
        feed, clock = self._look.backend.feed, self._look.clock
        position = await feed.end()

        async def read() -> None:
            after = position
            while True:
                page = await feed.read(after, limit=PAGE, wait_s=WAIT_S)
                after = page.position
                await self._hear(page)
                if self._rest_s:
                    await clock.sleep(self._rest_s)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            try:
                yield self
            finally:
                reading.cancel()

    async def _hear(self, page: FeedPage) -> None:
        """What was told while this reader was behind is looked up; what comes later is told."""
        now = self._look.clock.monotonic()
        for change in page.changes:
            if change.state in EXECUTION_FINAL:
                self._end(change.execution_id, now, change.state)
        if page.has_gap:
            ids = list(self._waiting)
            for first in range(0, len(ids), LOOKS_AT_ONCE):
                some = ids[first : first + LOOKS_AT_ONCE]
                await asyncio.gather(*[self._look_at(ExecutionId(each)) for each in some])

    def _end(self, execution_id: str, at: float, state: ExecutionState) -> None:
        self._found[execution_id] = at, state
        waiting = self._waiting.pop(execution_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result((at, state))

    async def _look_at(self, execution_id: ExecutionId) -> None:
        try:
            header = await self._look.client.header(execution_id)
        except NotFoundError:
            return
        if header.state in EXECUTION_FINAL:
            self._end(execution_id, self._look.clock.monotonic(), header.state)
