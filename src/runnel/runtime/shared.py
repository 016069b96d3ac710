"""Something open that concurrent calls on one event loop share: the last one closes it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]


class Shared(Generic[T]):
    """Stays open until it is released; `error` is what ended it before that, `over` that it did."""

    def __init__(self, open_: Open[T]) -> None:
        self.users = 0
        self.error: Exception | None = None
        self.over = asyncio.Event()
        self._open = open_
        self._opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()

    async def run(self) -> None:
        try:
            async with self._open() as opened:
                self._opened.set_result(opened)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  # raised by all who wait for this
            self.error = error
        finally:
            self._opened.cancel()
            self.over.set()

    async def opened(self) -> T:
        await asyncio.wait([self._opened])
        if self.error is not None:
            raise self.error
        return self._opened.result()

    def release(self) -> None:
        self._released.set()


class Sharing(Generic[T]):
    """Opens for the first user on an event loop, and closes after the last one."""

    def __init__(self) -> None:
        self._running: dict[asyncio.AbstractEventLoop, tuple[Shared[T], asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def use(self, open_: Open[T]) -> AsyncIterator[Shared[T]]:
        """Raises what ended it, unless the block has raised already."""
        loop = asyncio.get_running_loop()
        shared, task = self._join(loop, open_)
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                if self._running.get(loop) == (shared, task):
                    del self._running[loop]
                shared.release()
                await asyncio.wait([task])
        if shared.error is not None:
            raise shared.error

    def _join(
        self, loop: asyncio.AbstractEventLoop, open_: Open[T]
    ) -> tuple[Shared[T], "asyncio.Task[None]"]:
        found = self._running.get(loop)
        if found is None or found[1].done():
            shared = Shared(open_)
            # Not in a group: it outlives the call that opened it while another one needs it.
            found = self._running[loop] = shared, loop.create_task(shared.run())
        return found
