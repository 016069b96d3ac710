"""Runs a workload on a site, in turn with its floor, as often as is wanted."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from statistics import median

import msgspec

from runnel.benchmarks.figures import Figures, medians, spreads
from runnel.benchmarks.floors.timing import Floor
from runnel.benchmarks.kinds import Kind
from runnel.benchmarks.site import Site
from runnel.benchmarks.submitting import run_all
from runnel.benchmarks.workflows import diamond

WARMING = 100
PER_S = "executions_per_s"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The median of each figure, and its least and most; the floor is in executions per second.

    None without a floor, and the ratio is that of the two medians.
    """

    figures: Figures
    spread: dict[str, tuple[float, float]]
    floor_per_s: float | None = None
    floor_spread: tuple[float, float] | None = None

    @property
    def floor_ratio(self) -> float | None:
        done = self.figures.get(PER_S)
        if done is None or self.floor_per_s is None:
            return None
        return done / self.floor_per_s


async def _at_once() -> None:
    """Nothing is left to do when the last execution has ended."""


async def measure(
    kind: Kind,
    site: Site,
    floor: AbstractAsyncContextManager[Floor | None],
    *,
    count: int,
    repetitions: int,
    settle: Callable[[], Awaitable[None]] = _at_once,
) -> Measured:
    """Both are warm: the engine has run 100 diamonds, the floor a tenth of what it will do.

    `settle` waits for what goes on behind the last end: neither pays for what the other left.
    """
    runs: list[Figures] = []
    floors: list[float] = []
    async with floor as bare:
        await run_all(site, diamond(), WARMING)
        if bare is not None:
            await kind.floor(bare, max(1, count // 10), site.clock)
        for _ in range(repetitions):
            await settle()
            runs.append(await kind.run(site, count))
            if bare is not None:
                await settle()
                floors.append(await kind.floor(bare, count, site.clock))
    return Measured(
        figures=medians(runs),
        spread=spreads(runs),
        floor_per_s=median(floors) if floors else None,
        floor_spread=(min(floors), max(floors)) if floors else None,
    )


def summarised(runs: list[Figures]) -> Measured:
    """Of what no floor can do."""
    return Measured(figures=medians(runs), spread=spreads(runs))
