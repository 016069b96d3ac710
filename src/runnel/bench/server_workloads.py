"""Measurements with Redis and PostgreSQL: the standard workloads, and workloads that kill or pause
a process.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from statistics import median

from runnel.backends.postgres.migrations import quote_identifier
from runnel.bench.deployment import FEED_PAUSE_S
from runnel.bench.figures import Figures
from runnel.bench.functions import FunctionKind
from runnel.bench.report import BenchmarkRequest, Measured, measure, summarize_runs
from runnel.bench.servers import (
    BenchmarkServers,
    DeploymentLayout,
    ServerDeployment,
    connect_postgres,
    open_server_deployment,
    settle,
)
from runnel.bench.workflows import build_diamond, build_napping_diamond
from runnel.core.ids import ExecutionId
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock


async def measure_on_servers(
    workload: str,
    servers: BenchmarkServers,
    layout: DeploymentLayout,
    *,
    count: int,
    repetitions: int,
    functions: FunctionKind = "sync",
) -> Measured:
    async with open_server_deployment(servers, layout) as deployment:
        return await measure(
            workload,
            deployment,
            count=count,
            repetitions=repetitions,
            functions=functions,
            settle=partial(settle, servers),
        )


async def measure_special_workload(
    request: BenchmarkRequest, servers: BenchmarkServers
) -> Measured:
    if request.workload == "takeover":
        runs = [await measure_takeovers(servers, request.count) for _ in range(request.repetitions)]
        return summarize_runs(runs)
    layout = DeploymentLayout(concurrency=request.concurrency, workers=request.workers)
    async with open_server_deployment(servers, layout) as deployment:
        runs = [
            await measure_archive_down(deployment, request.count)
            for _ in range(request.repetitions)
        ]
    return summarize_runs(runs)


# Workloads that kill orchestrators and workers.

LEASE_S = 3.0
HEARTBEAT_TIMEOUT_S = 3.0
ORCHESTRATORS = ("orchestrator-0", "orchestrator-1")


async def measure_takeovers(servers: BenchmarkServers, count: int) -> Figures:
    """Measures from the kill -9 of one of two orchestrators until the other owns all partitions."""
    layout = DeploymentLayout(orchestrators=2, environ={"ORCHESTRATOR_LEASE_TIMEOUT": str(LEASE_S)})
    async with open_server_deployment(servers, layout) as deployment:
        seconds = [await _measure_takeover(deployment, number) for number in range(count)]
    return {
        "takeover_lease_s": LEASE_S,
        "takeover_s_p50": median(seconds),
        "takeover_s_max": max(seconds),
    }


async def _measure_takeover(deployment: ServerDeployment, number: int) -> float:
    dead, alive = ORCHESTRATORS[number % 2], ORCHESTRATORS[1 - number % 2]
    await deployment.wait_until_owned([deployment.fleet.pid(name) for name in ORCHESTRATORS])
    deployment.fleet.kill(dead)
    started = deployment.clock.monotonic()
    await deployment.wait_until_owned([deployment.fleet.pid(alive)])
    seconds = deployment.clock.monotonic() - started
    deployment.fleet.start(dead)
    return seconds


async def measure_killed_workers(servers: BenchmarkServers, count: int) -> Figures:
    """Kills two workers with SIGKILL once a tenth of the diamonds have ended, and starts them
    again.

    A node takes 50 ms, so that every slot is busy when its worker is killed.
    """
    layout = DeploymentLayout(
        workers=2,
        environ={
            "WORKER_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
            "WORKER_HEARTBEAT_INTERVAL": str(HEARTBEAT_TIMEOUT_S / 4),
        },
    )
    async with (
        open_server_deployment(servers, layout) as deployment,
        deployment.watch_completions() as ends,
    ):
        ids = await asyncio.gather(
            *[deployment.client.submit(build_napping_diamond()) for _ in range(count)]
        )
        waits = [ends.wait_until_completed(id_) for id_ in ids]
        ended: list[float] = []
        killed_at = 0.0
        for wait in asyncio.as_completed(waits):
            ended.append(await wait)
            if len(ended) == max(1, count // 10):
                for name in ("worker-0", "worker-1"):
                    deployment.fleet.replace(name)
                killed_at = deployment.clock.monotonic()
    return {
        "killed_workers_finished": float(len(ended)),
        "killed_workers_s": max(ended) - killed_at,
    }


# Workloads whose executions are submitted while the orchestrator is paused.

PAUSED_ORCHESTRATOR = "orchestrator-0"
BACKLOG_POLL_S = 0.1
CATCH_UP_TIMEOUT_S = 120.0
DIAMOND_NODES = 4


async def measure_backlog(deployment: ServerDeployment, count: int) -> Figures:
    """Measures how fast a backlog of submitted executions runs.

    The orchestrator is paused during the submits, so the result does not include their cost.
    """
    ids = await _submit_while_paused(deployment, count)
    return {"backlog_per_s": count / await _measure_drain(deployment, ids)}


async def measure_archive_down(deployment: ServerDeployment, count: int) -> Figures:
    """Measures a backlog while PostgreSQL is stopped, then counts the archived executions.

    The executions are submitted before PostgreSQL is stopped, because a submit returns only when
    PostgreSQL has stored it.
    """
    postgres = deployment.servers.postgres
    if postgres is None:
        raise BrokenInvariantError("only a private PostgreSQL can be stopped")
    ids = await _submit_while_paused(deployment, count)
    await asyncio.to_thread(postgres.stop)
    try:
        seconds = await _measure_drain(deployment, ids)
    finally:
        await asyncio.to_thread(postgres.start)
    started = deployment.clock.monotonic()
    missing = await _count_missing(deployment.servers, ids, deployment.clock)
    return {
        "engine_only_per_s": count / seconds,
        "engine_only_nodes_per_s": DIAMOND_NODES * count / seconds,
        "caught_up_s": deployment.clock.monotonic() - started,
        "lost": float(missing),
    }


async def _submit_while_paused(deployment: ServerDeployment, count: int) -> Sequence[ExecutionId]:
    deployment.fleet.pause(PAUSED_ORCHESTRATOR)
    return await asyncio.gather(*[deployment.client.submit(build_diamond()) for _ in range(count)])


async def _measure_drain(deployment: ServerDeployment, ids: Sequence[ExecutionId]) -> float:
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = deployment.clock.monotonic()
        deployment.fleet.resume(PAUSED_ORCHESTRATOR)
        return max(await asyncio.gather(*map(ends.wait_until_completed, ids))) - started


async def _count_missing(
    servers: BenchmarkServers, ids: Sequence[ExecutionId], clock: Clock
) -> int:
    """Returns the number of executions that are not archived as completed, with all their nodes.

    Returns 0 as soon as the archive has all executions, or the number that is missing after
    CATCH_UP_TIMEOUT_S.
    """
    schema = quote_identifier(servers.name)
    query = (
        f"SELECT count(*) FROM {schema}.executions WHERE id = ANY ($1) AND state = 'COMPLETED' "  # noqa: S608  # quoted
        f"AND $2 = (SELECT count(*) FROM {schema}.node_executions "
        "WHERE execution_id = executions.id AND node_executions.state = 'COMPLETED')"
    )
    end = clock.monotonic() + CATCH_UP_TIMEOUT_S
    async with connect_postgres(servers.postgres_url or "") as connection:
        while True:
            archived: int = await connection.fetchval(query, ids, DIAMOND_NODES)
            if archived == len(ids) or clock.monotonic() > end:
                return len(ids) - archived
            await clock.sleep(BACKLOG_POLL_S)
