"""Two loops of a worker: one sends heartbeats, the other stops tasks that a commit has dropped."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from runnel.core.ids import TaskToken
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.task_run import HeldTasks
from runnel.ports.workers import WorkerInfo

# The longest duration of one `wait_dropped` call. The call returns as soon as a task is dropped.
DROPPED_WAIT_S = 30.0

# The most running tasks that a heartbeat lists, so that a heartbeat has only a few kilobytes.
TASKS_SHOWN_MAX = 50

StopDropped = Callable[[Sequence[TaskToken]], None]


class Heartbeat:
    """Sends heartbeats.

    Each heartbeat describes the worker, because the store may have lost the description.
    """

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
        """Changes the worker's description and sends it at once."""
        self.about = about
        self._is_early.set()

    async def beat(self) -> None:
        """Sends heartbeats until cancelled."""
        while True:
            self._is_early.clear()
            await self.tick()
            await self._dependencies.clock.wait(self._is_early, self._beat_s)

    async def tick(self) -> int:
        dependencies = self._dependencies
        reply = await dependencies.store_retry.run(
            lambda: dependencies.tasks.beat(
                dependencies.worker, self._held.tokens(), about=self._build_info()
            ),
            "beat",
        )
        self._stop_dropped(reply.stop)
        if reply.drains and not self.about.is_draining:
            self._drain()
        return len(reply.stop)

    def _build_info(self) -> WorkerInfo:
        held = self._held
        return replace(
            self.about,
            claimed_at=held.claimed_at,
            abandoned_threads=held.abandoned_threads,
            tasks=held.running(limit=TASKS_SHOWN_MAX),
            refuses=self._dependencies.refusals.names,
        )

    async def listen(self) -> None:
        """Waits for tasks that a commit has dropped and stops them, until cancelled."""
        dependencies = self._dependencies
        while True:
            dropped = await dependencies.store_retry.run(
                lambda: dependencies.tasks.wait_dropped(dependencies.worker, wait_s=DROPPED_WAIT_S),
                "wait_dropped",
            )
            self._stop_dropped(dropped)
