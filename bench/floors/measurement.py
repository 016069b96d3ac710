"""Measures a floor, alone or in turn with its engine."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from bench.floors.batch import build_shape
from bench.floors.embedded import NoFloorStorage, SqliteFloorStorage, open_embedded_floor
from bench.floors.redis import open_redis_floor
from bench.floors.redis_connection import FloorConfig
from bench.floors.workloads import WORKLOADS, Floor
from runnel.bench.deployment import BenchmarkDeployment
from runnel.bench.figures import Figures
from runnel.bench.functions import FunctionKind
from runnel.bench.report import warm_up
from runnel.bench.runs import StorageMode
from runnel.bench.servers import BenchmarkServers, DeploymentLayout, remove_traces, settle
from runnel.bench.workloads import measure_workload
from runnel.engine.clock import RealClock

Settle: TypeAlias = Callable[[], Awaitable[None]]


async def measure_with_floor(
    workload: str,
    site: BenchmarkDeployment,
    floor: Floor,
    count: int,
    *,
    settle: Settle,
    functions: FunctionKind = "sync",
) -> Figures:
    """Returns the engine's figures and `floor_per_s`; `settle` waits for unfinished archiving.

    Both are warmed up: the engine with diamonds, the floor with a tenth of its executions.
    """
    await warm_up(site)
    await warm_up_floor(workload, floor, count)
    figures = await measure_workload(workload, site, count, functions=functions, settle=settle)
    await settle()
    floor_per_s = await WORKLOADS[workload].execute(floor, count, site.clock)
    return {**figures, "floor_per_s": floor_per_s}


async def measure_floor(
    workload: str, floor: Floor, count: int, repetitions: int, settle: Settle
) -> list[float]:
    """Warms the floor up and returns the executions per second of each repetition."""
    await warm_up_floor(workload, floor, count)
    rates = []
    for _ in range(repetitions):
        await settle()
        rates.append(await WORKLOADS[workload].execute(floor, count, RealClock()))
    return rates


async def warm_up_floor(workload: str, floor: Floor, count: int) -> None:
    await WORKLOADS[workload].execute(floor, max(1, count // 10), RealClock())


@asynccontextmanager
async def embedded_floor_for(
    workload: str, storing: StorageMode, slots: int
) -> AsyncIterator[Floor]:
    shape = build_shape(WORKLOADS[workload].workflow())
    if storing == "memory":
        async with open_embedded_floor(shape, NoFloorStorage(), slots) as floor:
            yield floor
        return
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        storage = SqliteFloorStorage(Path(folder), storing)
        try:
            async with open_embedded_floor(shape, storage, slots) as floor:
                yield floor
        finally:
            storage.close()


@asynccontextmanager
async def server_floor_for(
    workload: str, servers: BenchmarkServers, layout: DeploymentLayout
) -> AsyncIterator[Floor]:
    """Opens a floor on servers, and removes its data from servers that are not private."""
    floor_servers = name_floor(servers)
    config = FloorConfig(
        redis_url=floor_servers.redis_url,
        postgres_url=floor_servers.postgres_url,
        name=floor_servers.name,
        workload=workload,
        slots=layout.concurrency,
    )
    try:
        async with open_redis_floor(config, layout.workers) as floor:
            yield floor
    finally:
        if not floor_servers.is_private:
            await remove_traces(floor_servers, RealClock())


def name_floor(servers: BenchmarkServers) -> BenchmarkServers:
    """Returns the servers with a separate prefix and schema for the floor."""
    return structs.replace(servers, name=f"{servers.name}-floor")


async def settle_nothing() -> None:
    """Does nothing: an embedded engine stores everything before an execution ends."""


async def settle_both(servers: BenchmarkServers) -> None:
    """Waits until the archive has all executions of the engine and its floor."""
    await settle(servers, name_floor(servers))
