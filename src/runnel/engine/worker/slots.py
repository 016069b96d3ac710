"""The slots of a worker, one count over all queues, and the loop that claims tasks for them.

Each slot in use has an asyncio task of its own, a runner, which takes one run after another.
A batch wakes one runner only; whoever is about to wait passes the rest on to the next. So four
handlers that never wait are run by one task in one turn of the loop, and four that do wait run
in parallel. With no-op handlers and the memory backend a task costs 26 µs in all at 4 slots and
12 µs at 64: a batch has two turns of the loop, a claim and a report to share (and had a start
check when this was measured).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from runnel.core.effects import TaskMessage
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.task_run import HeldTasks, TaskRun


class Slots:
    """`ahead` is how many runs may stand in line here, claimed and not begun, while those before
    them end without waiting: behind one that takes a while they would be claimed too early.
    """

    def __init__(self, count: int, *, claim_ahead: int = 0) -> None:
        self.count = count
        self._claim_ahead = claim_ahead
        self._ended_at_once = 0
        self.free = count
        self._ready: deque[TaskRun] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._claimer: asyncio.Future[None] | None = None
        self._runners = 0
        self._start_runner: Callable[[], None] | None = None

    def open(self, start_runner: Callable[[], None]) -> None:
        """`start_runner` is called for each further runner that is needed, up to `count`."""
        self._start_runner = start_runner

    @property
    def claimable(self) -> int:
        """How many more tasks there is room for."""
        ahead = self._claim_ahead if self._ended_at_once >= self.count else 0
        return self.free + ahead - len(self._ready)

    async def wait_claimable(self) -> int:
        while self.claimable <= 0:
            self._claimer = asyncio.get_running_loop().create_future()
            await self._claimer
        return self.claimable

    def put(self, runs: Iterable[TaskRun]) -> None:
        self._ready.extend(runs)
        self.wake_runner()

    def put_first(self, run: TaskRun) -> None:
        self._ready.appendleft(run)
        self.wake_runner()

    def wake_runner(self) -> None:
        """Wakes a runner for the runs that wait: called before anything that may take a while."""
        if not self._ready or self.free <= 0:
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if self._runners < self.count and self._start_runner is not None:
            self._runners += 1
            self._start_runner()

    async def take(self) -> TaskRun:
        """The next run that is still wanted, with a slot for it; `release` gives the slot back."""
        while True:
            while self._ready and self.free > 0:
                run = self._ready.popleft()
                if run.stop_reason is None:
                    self.free -= 1
                    return run
                run.is_finished = True
                self._wake_claimer()
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def note_suspended(self) -> None:
        """A run that has begun takes a while."""
        self._ended_at_once = 0
        self.wake_runner()

    def release(self) -> None:
        self.free += 1
        self._ended_at_once += 1
        self._wake_claimer()

    def drain_ready(self) -> list[TaskRun]:
        """Those that have not begun, for a worker that ends."""
        runs = list(self._ready)
        self._ready.clear()
        return runs

    def _wake_claimer(self) -> None:
        claimer = self._claimer
        if claimer is not None and not claimer.done():
            claimer.set_result(None)


# -- the claim loop: as many tasks as there are free slots -------------------------------------

# A claim that finds nothing waits in the store, not here: this is only how long one call lasts.
CLAIM_WAIT_S = 30.0


class ClaimLoop:
    def __init__(
        self,
        dependencies: WorkerDependencies,
        slots: Slots,
        reporter: Reporter,
        *,
        held: HeldTasks,
        queues: Sequence[str] | None,
    ) -> None:
        self._dependencies = dependencies
        self._slots = slots
        self._reporter = reporter
        self._held = held
        self._queues = queues
        self._waiting: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def run(self) -> None:
        while not self._is_stopped:
            await self.tick()

    async def tick(self) -> int:
        claimed = await self._claim()
        if not claimed:
            return 0
        # A store that was set back hands out again what is running here: one run is enough.
        runs = [self._held.add(task) for task in claimed if self._held.find(task.token) is None]
        self._held.claimed_at = self._dependencies.clock.now()
        self._slots.put(runs)
        # Those that end at once do so now, and the next claim is for all their slots. Without this
        # turn of the loop four slots were filled by three and one, for ever: twice the claims.
        await asyncio.sleep(0)
        return len(runs)

    def stop(self) -> None:
        """Claims nothing more; a batch that is claimed already still starts."""
        self._is_stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _claim(self) -> Sequence[TaskMessage]:
        """May be cancelled by `stop` at any point: what it then claims is given up as lost."""
        around = self._dependencies
        self._waiting = asyncio.current_task()
        try:
            await self._reporter.wait_room()
            limit = await self._slots.wait_claimable()
            return await around.store_retry.run(
                lambda: around.tasks.claim(
                    around.worker, self._queues, limit=limit, wait_s=CLAIM_WAIT_S, starts_tasks=True
                ),
                "claim",
            )
        finally:
            self._waiting = None
