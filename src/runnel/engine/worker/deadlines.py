"""One heap of deadlines for all runs of a worker, instead of a timer for each.

Only a run that waits gets an entry, and most entries are due a fixed time after they were made:
the loop sleeps until the oldest, so it seldom has to be woken. What is not needed any more stays
behind until there is more of it than of the rest: a run that has ended would otherwise be kept,
with its input, until its time-out. A timer of the event loop for each run would cost 2 µs, this
0.7 µs.
"""

import asyncio
from heapq import heapify, heappop, heappush
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
        self._stale = 0
        self._order = count()
        self._wakes_at = inf
        self._sooner = asyncio.Event()

    def arm(self, run: Run, at: float) -> None:
        """The run is checked at `at` (monotonic), and at no time that it was armed for before."""
        if at == run.check_at:
            return
        if run.check_at != inf:
            self.forget(run)
        if at == inf:
            return
        run.check_at = at
        heappush(self._heap, (at, next(self._order), run))
        if at < self._wakes_at:
            self._sooner.set()

    def forget(self, run: Run) -> None:
        """The run is not checked any more."""
        if run.check_at == inf:
            return
        run.check_at = inf
        self._stale += 1
        if 2 * self._stale > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].check_at == entry[0]]
            heapify(self._heap)
            self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

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
            if run.check_at != at:
                self._stale -= 1
                continue
            run.check_at = inf
            if not run.is_over:
                self.arm(run, checks.check(run, now))
                checked += 1
        return checked
