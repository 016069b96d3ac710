"""Time that stands still until a test moves it, and ids that are the same in every run."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from runnel.testing.alarms import AlarmClock

# Turns of the loop that tasks get to go on by themselves before and after time moves.
TURNS = 30


async def settle() -> None:
    """Lets every task that can go on without time passing do so."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class FakeClock(AlarmClock):
    """A Clock whose time moves by `advance` only, and wakes sleepers in the order they are due."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._start = now
        self._passed_s = 0.0
        self._order = count()
        self._alarms: list[tuple[float, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._set = asyncio.Event()

    def now(self) -> float:
        return self._start + self._passed_s

    def monotonic(self) -> float:
        return self._passed_s

    @property
    def sleepers(self) -> int:
        """How many wait for time to pass."""
        return len(self._alarms) - len(self._cancelled)

    async def until_asleep(self) -> None:
        """Until somebody waits for time to pass: for what takes real time before, as threads do."""
        while not self.sleepers:
            self._set.clear()
            await self._set.wait()

    async def advance(self, seconds: float) -> None:
        """Moves time on, stopping at each alarm that is due on the way."""
        end = self._passed_s + seconds
        await settle()
        while self._alarms and self._alarms[0][0] <= end:
            due, number, ring = heapq.heappop(self._alarms)
            if number in self._cancelled:
                self._cancelled.discard(number)
                continue
            self._passed_s = max(self._passed_s, due)
            ring()
            await settle()
        self._passed_s = end
        await settle()

    def alarm(self, seconds: float, ring: Callable[[], None]) -> int:
        number = next(self._order)
        heapq.heappush(self._alarms, (self._passed_s + max(0.0, seconds), number, ring))
        self._set.set()
        return number

    def silence(self, alarm: int) -> None:
        self._cancelled.add(alarm)


class FakeIds:
    """`prefix` keeps two processes apart, as chance does with real ids."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._numbers = count(1)

    def execution_id(self) -> str:
        return f"{self._prefix}x{next(self._numbers):06}"

    def nonce(self) -> str:
        return f"{self._prefix}n{next(self._numbers):06}"
