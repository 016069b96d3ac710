"""Two loops towards the store: this worker lives and holds these; which of them should stop?"""

from collections.abc import Callable, Sequence

from runnel.core.ids import Token
from runnel.engine.worker.runs import Held
from runnel.engine.worker.surroundings import Surroundings

# Dropped tokens come at once; this is only how long one call lasts.
DROPPED_WAIT_S = 30.0

StopDropped = Callable[[Sequence[Token]], None]


class Heartbeat:
    def __init__(
        self, around: Surroundings, held: Held, stop_dropped: StopDropped, *, beat_s: float
    ) -> None:
        self._around = around
        self._held = held
        self._stop_dropped = stop_dropped
        self._beat_s = beat_s

    async def beat(self) -> None:
        """Ends when it is cancelled."""
        while True:
            await self.tick()
            await self._around.clock.sleep(self._beat_s)

    async def tick(self) -> int:
        around = self._around
        dropped = await around.patience.until_done(
            lambda: around.tasks.beat(around.worker, self._held.tokens()), "beat"
        )
        self._stop_dropped(dropped)
        return len(dropped)

    async def listen(self) -> None:
        """Ends when it is cancelled."""
        around = self._around
        while True:
            dropped = await around.patience.until_done(
                lambda: around.tasks.wait_dropped(around.worker, wait_s=DROPPED_WAIT_S),
                "wait_dropped",
            )
            self._stop_dropped(dropped)
