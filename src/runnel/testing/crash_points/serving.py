"""An engine as a process of a deployment has it: all partitions, and an eye on who is dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runnel.engine.liveness import LOOKS_PER_TIMEOUT
from runnel.engine.services.reaper import Reaper
from runnel.ports.backend import Backend
from runnel.runtime.clock import RealClock
from runnel.runtime.engine import Engine

LOOK_AGAIN_S = 0.005


class UnhurriedClock(RealClock):
    """Time in which the process itself was held up counts as one step, however long it was.

    Times are so short here that a busy machine alone would make a living worker dead: observer
    and observed are one process, and both stand still.
    """

    def __init__(self, *, step_s_max: float) -> None:
        self._step_s_max = step_s_max
        self._looked_at = super().monotonic()
        self._passed_s = 0.0

    def monotonic(self) -> float:
        now = super().monotonic()
        self._passed_s += min(now - self._looked_at, self._step_s_max)
        self._looked_at = now
        return self._passed_s


@asynccontextmanager
async def serving(engine: Engine, *, dead_after_s: float) -> AsyncIterator[None]:
    """The engine works inside the block, and is drained and closed after it."""
    backend = engine.backend
    clock = UnhurriedClock(step_s_max=dead_after_s / LOOKS_PER_TIMEOUT)
    # A life that ended had not beaten twice: its moments are the same each time.
    reaper = Reaper(
        backend.store,
        backend.tasks,
        clock,
        engine.hub,
        dead_after_s=dead_after_s,
        heeds_beats=False,
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=True))
            group.create_task(reaper.run(engine.stops.gently))
            try:
                yield
            finally:
                engine.stops.gently.set()
    finally:
        await backend.close()


async def until_alone(engine: Engine, plain: Backend) -> None:
    """Until all that the dead have held is this engine's: what is left then, it has left."""
    while not await _is_alone(engine, plain):
        await engine.clock.sleep(LOOK_AGAIN_S)


async def _is_alone(engine: Engine, plain: Backend) -> bool:
    owned = {lease.partition for lease in engine.leases()}
    if owned != set(await plain.store.partitions()):
        return False
    return {record.worker for record in await plain.tasks.workers()} <= {engine.name}
