"""A workload on an engine in this process, in turn with the floor of that."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from runnel.benchmarks.embedded import Storing, embedded
from runnel.benchmarks.floors.embedded_floor import embedded_floor
from runnel.benchmarks.floors.shape import shape_of
from runnel.benchmarks.floors.storage import NoStorage, SqliteStorage
from runnel.benchmarks.floors.timing import Floor
from runnel.benchmarks.kinds import Kind
from runnel.benchmarks.measuring import Measured, measure


async def measure_embedded(
    kind: Kind, storing: Storing, *, concurrency: int, count: int, repetitions: int
) -> Measured:
    async with embedded(storing, concurrency) as site:
        floor = floor_of(kind, storing, concurrency)
        return await measure(kind, site, floor, count=count, repetitions=repetitions)


@asynccontextmanager
async def floor_of(kind: Kind, storing: Storing, slots: int) -> AsyncIterator[Floor | None]:
    """None when no floor can do this kind."""
    if kind.workflow is None:
        yield None
        return
    shape = shape_of(kind.workflow())
    if storing == "memory":
        async with embedded_floor(shape, NoStorage(), slots) as floor:
            yield floor
        return
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        storage = SqliteStorage(Path(folder), storing)
        try:
            async with embedded_floor(shape, storage, slots) as floor:
                yield floor
        finally:
            storage.close()
