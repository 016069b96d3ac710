"""Waiting on a clock whose alarms are not the machine's: what fake and simulated time share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class AlarmClock(ABC):
    """The waiting half of the Clock port, for a clock that can ring at a given time."""

    @abstractmethod
    def alarm(self, seconds: float, ring: Callable[[], None]) -> int:
        """Calls `ring` once the time has passed; returns a number for `silence`."""

    @abstractmethod
    def silence(self, alarm: int) -> None: ...

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self.wait(asyncio.Event(), seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return _Timeout(self, seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event.is_set() or (seconds is not None and seconds <= 0):
            return event.is_set()
        if seconds is None:
            return await event.wait()
        try:
            async with self.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return event.is_set()

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        async with self.timeout(seconds):
            return await work


class _Timeout:
    """What asyncio.timeout does, on the fake clock: cancels the task, then says why."""

    def __init__(self, clock: AlarmClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._alarm: int | None = None
        self._is_over = False
        self._cancels_before = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._alarm = self._clock.alarm(self._seconds, self._ring)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_over:
            if self._alarm is not None:
                self._clock.silence(self._alarm)
            return
        cancels = self._task.uncancel() if self._task is not None else 0
        is_only_reason = cancels <= self._cancels_before
        if is_only_reason and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def _ring(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
