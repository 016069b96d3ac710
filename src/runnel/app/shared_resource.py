"""A resource that concurrent calls share, on the event loop that opened it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from runnel.errors import EngineEndedError

T = TypeVar("T")
R = TypeVar("R")
OpenResource: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]


class SharedResource(Generic[T]):
    """A resource that stays open until it is released.

    `ended` is set when it is closed. `error` is the exception that closed it early. `stays_open`
    means that the resource does not close with its last user.
    """

    def __init__(self, open_: OpenResource[T], *, stays_open: bool = False) -> None:
        self.users = 0
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self._open = open_
        self._stays_open = stays_open
        self._opened: asyncio.Future[T] = self.loop.create_future()
        self._released = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def value(self) -> T:
        """The resource, once it is open."""
        return self._opened.result()

    @property
    def has_one_user(self) -> bool:
        """True if the resource closes after the call that asks."""
        return self.users == 1 and not self._stays_open

    async def start(self) -> None:
        """Opens the resource, which stays open until `close`; raises the error of the opening."""
        # Not in a task group: the resource outlives the call that opens it.
        self._task = self.loop.create_task(self.run())
        try:
            await self.wait_until_opened()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes a resource that `start` has opened, and waits until it is closed."""
        self.release()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def run(self) -> None:
        try:
            async with self._open() as opened:
                self._opened.set_result(opened)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  # every user of the resource raises it
            self.error = _unwrap_group(error)
        finally:
            self._opened.cancel()
            self.ended.set()

    async def wait_until_opened(self) -> T:
        await asyncio.wait([self._opened])
        if self.error is not None:
            raise self.error
        return self._opened.result()

    def release(self) -> None:
        self._released.set()

    async def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs the coroutine on the event loop of the resource, which may be another thread's."""
        if asyncio.get_running_loop() is self.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def call_until_ended(self, work: Coroutine[Any, Any, R], execution_id: str = "") -> R:
        """Runs the coroutine; raises EngineEndedError if the resource is closed before its end."""
        working = self.loop.create_task(work)
        ending = self.loop.create_task(self.ended.wait())
        try:
            await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise EngineEndedError(execution_id, reason=self.error) from self.error
            return working.result()
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.wait([working])


def _unwrap_group(error: Exception) -> Exception:
    """Returns the only exception of a group, such as that of a TaskGroup."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class SharedResourcePool(Generic[T]):
    """Opens a resource for the first user on an event loop, and closes it after the last one."""

    def __init__(self) -> None:
        self._running: dict[
            asyncio.AbstractEventLoop, tuple[SharedResource[T], asyncio.Task[None]]
        ] = {}

    def is_open(self) -> bool:
        """Returns True if the resource is open on this event loop, or is being opened."""
        running = self._running.get(asyncio.get_running_loop())
        return running is not None and not running[1].done()

    @asynccontextmanager
    async def use(self, open_: OpenResource[T]) -> AsyncIterator[SharedResource[T]]:
        """Raises the error that closed the resource early, unless the block itself raises."""
        loop = asyncio.get_running_loop()
        shared, task = self._get_or_open(loop, open_)
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

    def _get_or_open(
        self, loop: asyncio.AbstractEventLoop, open_: OpenResource[T]
    ) -> tuple[SharedResource[T], "asyncio.Task[None]"]:
        running = self._running.get(loop)
        if running is None or running[1].done():
            shared = SharedResource(open_)
            # Not in a task group: the resource may outlive the call that opened it.
            running = self._running[loop] = shared, loop.create_task(shared.run())
        return running
