"""A workload on servers, in turn with the floor of that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import structs

from runnel.benchmarks.floors.redis_floor import redis_floor
from runnel.benchmarks.floors.redis_names import Plan
from runnel.benchmarks.floors.timing import Floor
from runnel.benchmarks.kinds import Kind
from runnel.benchmarks.measuring import Measured, measure
from runnel.benchmarks.on_servers import Layout, on_servers
from runnel.benchmarks.servers import Servers
from runnel.benchmarks.traces import remove_traces
from runnel.runtime.clock import RealClock


async def measure_on_servers(
    kind: Kind, servers: Servers, layout: Layout, *, count: int, repetitions: int
) -> Measured:
    async with on_servers(servers, layout) as site:
        floor = floor_of(kind, servers, layout)
        return await measure(kind, site, floor, count=count, repetitions=repetitions)


@asynccontextmanager
async def floor_of(kind: Kind, servers: Servers, layout: Layout) -> AsyncIterator[Floor | None]:
    """None when no floor can do this kind; on others' servers, nothing is left of it."""
    if kind.workflow is None:
        yield None
        return
    own = structs.replace(servers, name=f"{servers.name}-floor")
    plan = Plan(
        redis_url=own.redis_url,
        postgres_url=own.postgres_url,
        name=own.name,
        workflow=kind.workflow().name,
        slots=layout.concurrency,
    )
    try:
        async with redis_floor(plan, layout.workers) as floor:
            yield floor
    finally:
        if not own.is_private:
            await remove_traces(own, RealClock())
