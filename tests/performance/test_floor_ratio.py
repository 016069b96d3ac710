"""The engine keeps its ratio to the floor. A regression beyond the noise fails here.

Engine and floor run in turn, and the best of three counts. The tests compare the processor time of
all processes, which depends little on other work on the machine. They also compare elapsed time,
with a larger tolerance, because waiting costs no processor time. `make bench` measures the ratios.
"""

import os
import time
from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple

import pytest

from bench.floors.measurement import (
    Settle,
    embedded_floor_for,
    server_floor_for,
    settle_both,
    settle_nothing,
)
from bench.floors.workloads import Floor, execute_at_once
from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.bench.deployment import BenchmarkDeployment, EngineOnlyWork, run_all
from runnel.bench.machine import read_cpu_s
from runnel.bench.runs import StorageMode, open_embedded_deployment
from runnel.bench.servers import BenchmarkServers, DeploymentLayout, open_server_deployment
from runnel.bench.workflows import build_diamond

pytestmark = pytest.mark.slow

TURNS = 3
# The floor is several times faster, so it runs more executions to see the same noise.
FLOOR_FACTOR = 3
# The minimum ratio of elapsed time is this share of the one of processor time, as it is noisier.
ELAPSED_SHARE = 0.25


class Cost(NamedTuple):
    """The cost of one execution."""

    processor_s: float
    elapsed_s: float


async def measure_cost(work: Awaitable[object], count: int, settle: Settle) -> Cost:
    """Measures `work`, including the processor time of archiving after its last execution."""
    used_s, started_at = read_processor_s(), time.perf_counter()
    await work
    elapsed_s = time.perf_counter() - started_at
    await settle()
    return Cost((read_processor_s() - used_s) / count, elapsed_s / count)


def read_processor_s() -> float:
    """Returns the processor time of this process, its children and their children.

    PostgreSQL has one child per connection.
    """
    children = list_children(os.getpid())
    grandchildren = [pid for child in children for pid in list_children(child)]
    return time.process_time() + read_cpu_s([*children, *grandchildren])


async def check_ratio(
    site: BenchmarkDeployment,
    floor: Floor,
    count: int,
    *,
    least: float,
    settle: Settle = settle_nothing,
) -> None:
    await settle()
    work = EngineOnlyWork(build_diamond())
    engines, floors = [], []
    for _ in range(TURNS):
        engines.append(await measure_cost(run_all(site, work, count), count, settle))
        floor_work = execute_at_once(floor, FLOOR_FACTOR * count, site.clock)
        floors.append(await measure_cost(floor_work, FLOOR_FACTOR * count, settle))
    processor_ratio, elapsed_ratio = (
        min(cost[part] for cost in floors) / min(cost[part] for cost in engines) for part in (0, 1)
    )

    assert processor_ratio > least
    assert elapsed_ratio > ELAPSED_SHARE * least


# Half of the ratios of 2026-11-16, in three runs: 0.13 to 0.14, 0.28 to 0.32 and 0.25 to 0.27.
@pytest.mark.parametrize(
    ("storing", "least"), [("memory", 0.06), ("process", 0.14), ("power", 0.12)]
)
async def test_an_embedded_engine_keeps_its_ratio_to_the_floor(
    storing: StorageMode, least: float
) -> None:
    async with (
        open_embedded_deployment(storing, 4) as site,
        embedded_floor_for("diamond", storing, 4) as floor,
    ):
        await check_ratio(site, floor, 250, least=least)


async def test_a_deployment_on_servers_keeps_its_ratio_to_the_floor(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    servers = BenchmarkServers(
        redis_url=shared_redis.url, postgres_url=shared_postgres.url, name="runnel-bench-ratio"
    )
    layout = DeploymentLayout(concurrency=64)

    async with (
        open_server_deployment(servers, layout) as site,
        server_floor_for("diamond", servers, layout) as floor,
    ):
        # Half of the ratio of 2026-11-16, in four runs: 0.29 to 0.32.
        await check_ratio(site, floor, 200, least=0.14, settle=partial(settle_both, servers))
