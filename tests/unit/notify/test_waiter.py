"""Whoever waits for the end of an execution is told, however many wait for the same one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runnel.backends.memory import MemoryBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.notify.waiter import Completion, ExecutionWaiter
from runnel.ports.store import ExecutionHeader
from runnel.testing.clock import FakeClock, FakeIds, settle
from runnel.testing.conformance.suite import ROOT_ID, make_header


class Elsewhere:
    """An execution that another process runs: its end is told to who listens."""

    def __init__(self) -> None:
        self.state = ExecutionState.RUNNING
        self.listening: list[asyncio.Event] = []
        self.is_slow = False
        self.go_on = asyncio.Event()
        self._ending = Completion()

    def ending_of(self, _execution_id: str) -> Completion:
        """One for all who wait for it, as in an engine."""
        return self._ending

    @asynccontextmanager
    async def listen(self, _execution_id: ExecutionId, news: asyncio.Event) -> AsyncIterator[None]:
        self.listening.append(news)
        yield

    async def look(self, execution_id: ExecutionId) -> ExecutionHeader:
        found = make_header(execution_id, state=self.state)
        if self.is_slow:
            await self.go_on.wait()
        return found

    def end(self) -> None:
        self.state = ExecutionState.COMPLETED
        self.is_slow = False
        for news in self.listening:
            news.set()


async def test_one_who_looks_while_another_is_told_is_told_too() -> None:
    clock, there = FakeClock(), Elsewhere()
    store = MemoryBackend(clock, FakeIds()).store
    endings = ExecutionWaiter(
        store, clock, there.look, get_completion=there.ending_of, listen=there.listen
    )

    async with asyncio.TaskGroup() as group:
        first = group.create_task(endings.wait(ROOT_ID, None))
        await settle()
        there.is_slow = True
        second = group.create_task(endings.wait(ROOT_ID, None))
        await settle()
        there.end()
        await settle()
        there.go_on.set()  # with what it has found before the end
        await settle()
        are_done = (first.done(), second.done())
        await clock.advance(60)

    assert are_done == (True, True)
