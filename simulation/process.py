"""A simulated process, which can be paused (SIGSTOP) and killed (kill -9), on virtual time."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutine
from itertools import count
from typing import Any, TypeVar

from runnel.testing.clock import AlarmClock

T = TypeVar("T")
EPOCH = 1_700_000_000.0


class SimulatedProcess:
    """A process of the deployment. All timers and responses reach its code through `deliver`.

    A paused process does nothing. When it resumes, it gets all timers and responses that it missed.
    A dead process gets nothing, and calls of its remaining code are cancelled.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, *, skew_s: float = 0.0) -> None:
        self.name = name
        self.loop = loop
        self.skew_s = skew_s
        self.is_dead = False
        self.is_paused = False
        self.is_cut_off = False
        self.clock = ProcessClock(self)
        self._backlog: list[Callable[[], None]] = []
        self._main: asyncio.Task[None] | None = None

    def run(self, main: Awaitable[None]) -> None:
        async def body() -> None:
            await main

        self._main = self.loop.create_task(body(), name=self.name)

    @property
    def has_ended(self) -> bool:
        return self._main is not None and self._main.done()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the code of the process, or None.

        Only an injected fault may end a process.
        """
        main = self._main
        if main is None or not main.done() or main.cancelled() or self.is_dead:
            return None
        return main.exception()

    def deliver(self, callback: Callable[[], None]) -> None:
        if self.is_dead:
            return
        if self.is_paused:
            self._backlog.append(callback)
        else:
            callback()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for callback in backlog:
            self.deliver(callback)

    def kill(self) -> None:
        self.is_dead = True
        self._backlog.clear()
        if self._main is not None:
            self._main.cancel()

    def check_alive(self) -> None:
        """Raises CancelledError if the process is dead.

        In a dead process, only `finally` blocks still run.
        """
        if self.is_dead:
            raise asyncio.CancelledError


class ProcessClock(AlarmClock):
    """The virtual clock of one process.

    Its wall time may be wrong, but its monotonic time is correct.
    """

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._numbers = count()
        self._alarms: dict[int, asyncio.TimerHandle] = {}

    def now(self) -> float:
        return EPOCH + self._process.loop.time() + self._process.skew_s

    def monotonic(self) -> float:
        return self._process.loop.time()

    async def sleep(self, seconds: float) -> None:
        self._process.check_alive()
        await super().sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        self._process.check_alive()
        return await super().wait(event, seconds)

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        if self._process.is_dead and iscoroutine(work):
            work.close()
        self._process.check_alive()
        return await super().run_within(seconds, work)

    def set_alarm(self, seconds: float, callback: Callable[[], None]) -> int:
        self._process.check_alive()
        number = next(self._numbers)

        def due() -> None:
            if self._alarms.pop(number, None) is not None:
                self._process.deliver(callback)

        self._alarms[number] = self._process.loop.call_later(max(0.0, seconds), due)
        return number

    def cancel_alarm(self, alarm: int) -> None:
        handle = self._alarms.pop(alarm, None)
        if handle is not None:
            handle.cancel()


# An event loop on virtual time. The loop never sleeps: its clock jumps to the next timer.

# The maximum number of loop turns at one virtual time. The highest number in 300 seeds was 14.
TURNS_MAX = 20_000


class StandstillError(Exception):
    """Raised if virtual time no longer advances, because of a deadlock or a busy loop."""


class _VirtualSelector(selectors.BaseSelector):
    """A selector that advances the virtual clock instead of sleeping.

    The only registered file is the wake-up pipe of the event loop, and nothing writes to it.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = 0
        self._files: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._files[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StandstillError("a deadlock: everything waits, and no timer is set")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > TURNS_MAX:
            self._turns = 0
            raise StandstillError(f"a busy loop: {TURNS_MAX} loop turns at one virtual time")
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that runs ready callbacks in order, then jumps to the time of the next timer.

    Each run of the same seed is identical.
    """

    def __init__(self) -> None:
        self._virtual_selector = _VirtualSelector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        return self._virtual_selector.now
