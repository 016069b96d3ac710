"""Every waiter for the end of an execution is notified, even if several wait for the same one."""

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


class RemoteExecution:
    """An execution that another process runs. Listeners are notified of its end."""

    def __init__(self) -> None:
        self.state = ExecutionState.RUNNING
        self.listening: list[asyncio.Event] = []
        self.is_slow = False
        self.may_answer = asyncio.Event()
        self._completion = Completion()

    def get_completion(self, _execution_id: str) -> Completion:
        """Returns the same object for all waiters, as an engine does."""
        return self._completion

    @asynccontextmanager
    async def listen(
        self, _execution_id: ExecutionId, wakeup: asyncio.Event
    ) -> AsyncIterator[None]:
        self.listening.append(wakeup)
        yield

    async def read_header(self, execution_id: ExecutionId) -> ExecutionHeader:
        header = make_header(execution_id, state=self.state)
        if self.is_slow:
            await self.may_answer.wait()
        return header

    def end(self) -> None:
        self.state = ExecutionState.COMPLETED
        self.is_slow = False
        for wakeup in self.listening:
            wakeup.set()


async def test_a_waiter_that_reads_while_another_one_is_notified_is_notified_too() -> None:
    clock, remote = FakeClock(), RemoteExecution()
    store = MemoryBackend(clock, FakeIds()).store
    waiter = ExecutionWaiter(
        store,
        clock,
        remote.read_header,
        get_completion=remote.get_completion,
        listen=remote.listen,
    )

    async with asyncio.TaskGroup() as group:
        first = group.create_task(waiter.wait(ROOT_ID, None))
        await settle()
        remote.is_slow = True
        second = group.create_task(waiter.wait(ROOT_ID, None))
        await settle()
        remote.end()
        await settle()
        remote.may_answer.set()  # the slow read answers with the state before the end
        await settle()
        are_done = (first.done(), second.done())
        await clock.advance(60)

    assert are_done == (True, True)
