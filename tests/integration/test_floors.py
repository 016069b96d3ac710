"""Benchmark floors run next to their engine and remove their data afterwards."""

from functools import partial

import asyncpg
import pytest

from bench.floors.measurement import (
    embedded_floor_for,
    measure_with_floor,
    name_floor,
    server_floor_for,
    settle_both,
    settle_nothing,
)
from bench.floors.redis import WARMUP_EXECUTIONS, open_redis_floor
from bench.floors.redis_connection import FloorConfig
from bench.floors.workloads import WORKLOADS, execute_at_once
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.bench.runs import StorageMode, open_embedded_deployment
from runnel.bench.servers import (
    BenchmarkServers,
    DeploymentLayout,
    open_server_deployment,
    remove_traces,
)
from runnel.engine.clock import RealClock
from tests.waiting import wait_for_value

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("storing", ["memory", "process", "power"])
async def test_an_embedded_engine_and_its_floor_are_measured_in_turn(storing: StorageMode) -> None:
    async with (
        open_embedded_deployment(storing, 4) as site,
        embedded_floor_for("diamond", storing, 4) as floor,
    ):
        figures = await measure_with_floor("diamond", site, floor, 20, settle=settle_nothing)

    assert figures["executions_per_s"] > 0
    assert figures["engine_only_per_s"] > 0
    assert figures["floor_per_s"] > 0


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_every_workload_that_has_a_floor_is_measured_with_it(workload: str) -> None:
    async with (
        open_embedded_deployment("memory", 64) as site,
        embedded_floor_for(workload, "memory", 64) as floor,
    ):
        figures = await measure_with_floor(workload, site, floor, 1, settle=settle_nothing)

    assert figures["floor_per_s"] > 0


async def test_an_engine_on_servers_and_its_floor_remove_their_data(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    servers = BenchmarkServers(
        redis_url=shared_redis.url, postgres_url=shared_postgres.url, name="runnel-bench-both"
    )
    layout = DeploymentLayout(concurrency=16)

    async with (
        open_server_deployment(servers, layout) as site,
        server_floor_for("diamond", servers, layout) as floor,
    ):
        settle = partial(settle_both, servers)
        figures = await measure_with_floor("diamond", site, floor, 20, settle=settle)
        schemas = await list_schemas(shared_postgres, servers.name)

    assert figures["floor_per_s"] > 0
    assert schemas == ["runnel-bench-both", "runnel-bench-both-floor"]
    assert await list_schemas(shared_postgres, servers.name) == []
    assert await remove_traces(name_floor(servers), RealClock()) == 0


async def list_schemas(postgres: PostgresServer, name: str) -> list[str]:
    connection = await asyncpg.connect(postgres.url)
    try:
        question = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1) ORDER BY 1"
        return [row[0] for row in await connection.fetch(question, name)]
    finally:
        await connection.close()


@pytest.mark.parametrize("storing", ["process", "power"])
async def test_a_floor_continues_while_its_write_ahead_log_is_reset(
    storing: StorageMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.backends.sqlite.writer.CHECKPOINT_ROWS", 50)
    monkeypatch.setattr("runnel.backends.sqlite.writer.WAL_PAGES_MAX", 20)

    async with embedded_floor_for("diamond", storing, 64) as floor:
        rates = [await execute_at_once(floor, 100, RealClock()) for _ in range(10)]

    assert min(rates) > 0


async def test_a_floor_on_servers_archives_its_executions(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    servers = BenchmarkServers(
        redis_url=shared_redis.url, postgres_url=shared_postgres.url, name="runnel-bench-floor"
    )
    plan = FloorConfig(
        redis_url=servers.redis_url,
        postgres_url=servers.postgres_url,
        name=servers.name,
        workload="diamond",
        slots=4,
    )
    try:
        async with open_redis_floor(plan, 1) as floor:
            await execute_at_once(floor, 10, RealClock())
            counts = await wait_until_archived(
                shared_postgres, servers.name, completed=WARMUP_EXECUTIONS + 10
            )
    finally:
        removed = await remove_traces(servers, RealClock())

    assert counts == {
        "nodes": 4 * (WARMUP_EXECUTIONS + 10),
        "entries": 4 * (WARMUP_EXECUTIONS + 10),
        "unapplied": 0,
    }
    assert removed > 0


async def wait_until_archived(
    postgres: PostgresServer, schema: str, *, completed: int
) -> dict[str, int]:
    """Waits for `completed` executions in the archive, then returns counts of its tables."""
    connection = await asyncpg.connect(postgres.url, server_settings={"search_path": f'"{schema}"'})

    async def read() -> bool | None:
        question = "SELECT count(*) FROM executions WHERE state = 'COMPLETED'"
        return await connection.fetchval(question) == completed or None

    try:
        await wait_for_value(read, every_s=0.05, deadline_s=20.0)
        return {
            "nodes": await connection.fetchval(
                "SELECT count(*) FROM node_executions WHERE state = 'COMPLETED'"
            ),
            "entries": await connection.fetchval("SELECT count(*) FROM audit_log"),
            "unapplied": await connection.fetchval(
                "SELECT count(*) FROM commands WHERE applied_at IS NULL"
            ),
        }
    finally:
        await connection.close()
