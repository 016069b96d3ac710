"""Two loops towards the store: this worker lives and holds these; which of them should stop?"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from runnel.core.ids import TaskToken
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.task_run import HeldTasks
from runnel.ports.workers import WorkerInfo

# Dropped tokens come at once; this is only how long one call lasts.
DROPPED_WAIT_S = 30.0

# Of those that run, in what a worker says of itself: a beat stays a few kilobytes.
TASKS_SHOWN_MAX = 50

StopDropped = Callable[[Sequence[TaskToken]], None]


class Heartbeat:
    """Every beat says what the worker is: the store may have forgotten it meanwhile."""

    def __init__(
        self,
        dependencies: WorkerDependencies,
        held: HeldTasks,
        stop_dropped: StopDropped,
        *,
        drain: Callable[[], None],
        about: WorkerInfo,
        beat_s: float,
    ) -> None:
        self.about = replace(about, beat_s=beat_s)
        self._dependencies = dependencies
        self._held = held
        self._stop_dropped = stop_dropped
        self._drain = drain
        self._beat_s = beat_s
        self._is_early = asyncio.Event()

    def update_info(self, about: WorkerInfo) -> None:
        """The worker is not what it was: said at once, not with the next beat."""
        self.about = about
        self._is_early.set()

    async def beat(self) -> None:
        """Ends when it is cancelled."""
        while True:
            self._is_early.clear()
            await self.tick()
            await self._dependencies.clock.wait(self._is_early, self._beat_s)

    async def tick(self) -> int:
        around = self._dependencies
        orders = await around.store_retry.run(
            lambda: around.tasks.beat(around.worker, self._held.tokens(), about=self._build_info()),
            "beat",
        )
        self._stop_dropped(orders.stop)
        if orders.drains and not self.about.is_draining:
            self._drain()
        return len(orders.stop)

    def _build_info(self) -> WorkerInfo:
        tasks = self._held.running(limit=TASKS_SHOWN_MAX)
        return replace(self.about, claimed_at=self._held.claimed_at, tasks=tasks)

    async def listen(self) -> None:
        """Ends when it is cancelled."""
        around = self._dependencies
        while True:
            dropped = await around.store_retry.run(
                lambda: around.tasks.wait_dropped(around.worker, wait_s=DROPPED_WAIT_S),
                "wait_dropped",
            )
            self._stop_dropped(dropped)
