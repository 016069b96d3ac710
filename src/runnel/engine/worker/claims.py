"""The claim loop: as many tasks as there are free slots; then they run."""

import asyncio
from collections.abc import Sequence

from runnel.core.effects import Task
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.runs import Held
from runnel.engine.worker.slots import Slots
from runnel.engine.worker.surroundings import Surroundings

# A claim that finds nothing waits in the store, not here: this is only how long one call lasts.
CLAIM_WAIT_S = 30.0


class ClaimLoop:
    def __init__(
        self,
        around: Surroundings,
        slots: Slots,
        reporter: Reporter,
        *,
        held: Held,
        queues: Sequence[str] | None,
    ) -> None:
        self._around = around
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
        self._held.claimed_at = self._around.clock.now()
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

    async def _claim(self) -> Sequence[Task]:
        """May be cancelled by `stop` at any point: what it then claims is given up as lost."""
        around = self._around
        self._waiting = asyncio.current_task()
        try:
            await self._reporter.wait_room()
            limit = await self._slots.wait_claimable()
            return await around.patience.until_done(
                lambda: around.tasks.claim(
                    around.worker, self._queues, limit=limit, wait_s=CLAIM_WAIT_S, starts=True
                ),
                "claim",
            )
        finally:
            self._waiting = None
