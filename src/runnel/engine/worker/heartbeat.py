"""Two loops towards the store: this worker lives and holds these; which of them should stop?"""

from collections.abc import Callable, Sequence

from runnel.core.ids import Token
from runnel.engine.worker.patience import Patience
from runnel.engine.worker.runs import Held
from runnel.ports.clock import Clock
from runnel.ports.store import TaskQueue

# Dropped tokens come at once; this is only how long one call lasts.
DROPPED_WAIT_S = 30.0

StopDropped = Callable[[Sequence[Token]], None]


class Heartbeat:
    def __init__(
        self,
        tasks: TaskQueue,
        held: Held,
        stop_dropped: StopDropped,
        *,
        clock: Clock,
        patience: Patience,
        worker: str,
        beat_s: float,
    ) -> None:
        self._tasks = tasks
        self._held = held
        self._stop_dropped = stop_dropped
        self._clock = clock
        self._patience = patience
        self._worker = worker
        self._beat_s = beat_s

    async def beat(self) -> None:
        """Ends when it is cancelled."""
        while True:
            await self.tick()
            await self._clock.sleep(self._beat_s)

    async def tick(self) -> int:
        dropped = await self._patience.until_done(
            lambda: self._tasks.beat(self._worker, self._held.tokens()), "beat"
        )
        self._stop_dropped(dropped)
        return len(dropped)

    async def listen(self) -> None:
        """Ends when it is cancelled."""
        while True:
            dropped = await self._patience.until_done(
                lambda: self._tasks.wait_dropped(self._worker, wait_s=DROPPED_WAIT_S),
                "wait_dropped",
            )
            self._stop_dropped(dropped)
