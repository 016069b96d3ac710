"""A clock that moves only when a test advances it, and ids that are equal in every run."""

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from types import TracebackType
from typing import Self, TypeVar

# -- waiting, for fake and for simulated time ---------------------------------------------------

T = TypeVar("T")


class AlarmClock(ABC):
    """The waiting methods of the Clock port, for fake clocks that can call back at a given time."""

    @abstractmethod
    def set_alarm(self, seconds: float, callback: Callable[[], None]) -> int:
        """Calls `callback` after `seconds`; returns a number for `cancel_alarm`."""

    @abstractmethod
    def cancel_alarm(self, alarm: int) -> None: ...

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self.wait(asyncio.Event(), seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return _AlarmTimeout(self, seconds)

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

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        async with self.timeout(seconds):
            return await work


class _AlarmTimeout:
    """A context manager like asyncio.timeout, but on a fake clock."""

    def __init__(self, clock: AlarmClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._alarm: int | None = None
        self._has_expired = False
        self._cancels_before = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task is not None else 0
        self._alarm = self._clock.set_alarm(self._seconds, self._expire)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._has_expired:
            if self._alarm is not None:
                self._clock.cancel_alarm(self._alarm)
            return
        cancels = self._task.uncancel() if self._task is not None else 0
        is_only_reason = cancels <= self._cancels_before
        if is_only_reason and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def _expire(self) -> None:
        self._has_expired = True
        if self._task is not None:
            self._task.cancel()


# The number of iterations of the event loop in which tasks can run before and after time moves.
SETTLE_TURNS = 30


async def settle() -> None:
    """Lets all tasks run until each of them waits for time to pass."""
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


class FakeClock(AlarmClock):
    """A clock that only `advance` moves.

    The clock wakes sleeping tasks in the order in which they are due.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._start = now
        self._passed_s = 0.0
        self._order = count()
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._alarm_added = asyncio.Event()

    def now(self) -> float:
        return self._start + self._passed_s

    def monotonic(self) -> float:
        return self._passed_s

    @property
    def sleepers(self) -> int:
        """The number of tasks that wait for time to pass on this clock."""
        return len(self._alarms) - len(self._cancelled)

    async def wait_for_sleeper(self) -> None:
        """Waits until at least one task waits for time to pass.

        Use this method when the task first does work in real time, for example in a thread.
        """
        while not self.sleepers:
            self._alarm_added.clear()
            await self._alarm_added.wait()

    async def advance(self, seconds: float) -> None:
        """Moves the time forward, and stops at each alarm that is due on the way."""
        end = self._passed_s + seconds
        await settle()
        while self._alarms and self._alarms[0][0] <= end:
            due, number, callback = heapq.heappop(self._alarms)
            if number in self._cancelled:
                self._cancelled.discard(number)
                continue
            self._passed_s = max(self._passed_s, due)
            callback()
            await settle()
        self._passed_s = end
        await settle()

    def set_alarm(self, seconds: float, callback: Callable[[], None]) -> int:
        number = next(self._order)
        heapq.heappush(self._alarms, (self._passed_s + max(0.0, seconds), number, callback))
        self._alarm_added.set()
        return number

    def cancel_alarm(self, alarm: int) -> None:
        self._cancelled.add(alarm)


class FakeIds:
    """Generates ids in sequence. `prefix` keeps the ids of two processes distinct."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._numbers = count(1)

    def execution_id(self) -> str:
        return f"{self._prefix}x{next(self._numbers):06}"

    def nonce(self) -> str:
        return f"{self._prefix}n{next(self._numbers):06}"
