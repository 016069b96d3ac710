"""A workload on servers, in turn with the floor of that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from msgspec import structs

from runnel.benchmarks.archived import until_archived
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
        return await measure(
            kind,
            site,
            floor,
            count=count,
            repetitions=repetitions,
            settle=partial(settled, kind, servers),
        )


async def settled(kind: Kind, servers: Servers) -> None:
    """Once all that was run, by the engine and by its floor, is in the archive."""
    if servers.postgres_url is None:
        return
    names = [servers.name, *([floor_name(servers)] if kind.workflow is not None else [])]
    await until_archived(servers.postgres_url, names, RealClock())


def floor_name(servers: Servers) -> str:
    return f"{servers.name}-floor"


@asynccontextmanager
async def floor_of(kind: Kind, servers: Servers, layout: Layout) -> AsyncIterator[Floor | None]:
    """None when no floor can do this kind; on others' servers, nothing is left of it."""
    if kind.workflow is None:
        yield None
        return
    own = structs.replace(servers, name=floor_name(servers))
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
