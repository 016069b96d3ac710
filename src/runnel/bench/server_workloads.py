"""What is measured on servers: any workload, and those that need a part of them to die or pause."""

import asyncio
from collections.abc import Sequence
from functools import partial
from statistics import median

from runnel.backends.postgres.migrations import quote_identifier
from runnel.bench.report import BenchmarkRequest, Measured, measure, summarize_runs
from runnel.bench.servers import (
    BenchmarkServers,
    DeploymentLayout,
    ServerDeployment,
    asking,
    open_server_deployment,
    settle,
)
from runnel.bench.setup import FEED_PAUSE_S, Figures, build_diamond, build_napping_diamond
from runnel.bench.workloads import BenchmarkWorkload
from runnel.core.ids import ExecutionId
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock


async def measure_on_servers(
    kind: BenchmarkWorkload,
    servers: BenchmarkServers,
    layout: DeploymentLayout,
    *,
    count: int,
    repetitions: int,
) -> Measured:
    async with open_server_deployment(servers, layout) as site:
        return await measure(
            kind,
            site,
            count=count,
            repetitions=repetitions,
            settle=partial(settle, servers),
        )


# What is not done by executions on one site: takeovers, and an archive that is down.


async def measure_other(asked: BenchmarkRequest, servers: BenchmarkServers) -> Measured:
    if asked.workload == "takeover":
        runs = [await takeovers(servers, asked.count) for _ in range(asked.repetitions)]
        return summarize_runs(runs)
    layout = DeploymentLayout(concurrency=asked.concurrency, workers=asked.workers)
    async with open_server_deployment(servers, layout) as site:
        runs = [await archive_down(site, asked.count) for _ in range(asked.repetitions)]
    return summarize_runs(runs)


# What a death costs: of workers in the middle of their tasks, and of an orchestrator.

LEASE_S = 3.0
TIMEOUT_S = 3.0
PLACES = ("orchestrator-0", "orchestrator-1")


async def takeovers(servers: BenchmarkServers, count: int) -> Figures:
    """From the kill -9 of one of two orchestrators until the other one owns every partition."""
    layout = DeploymentLayout(orchestrators=2, environ={"ORCHESTRATOR_LEASE_TIMEOUT": str(LEASE_S)})
    async with open_server_deployment(servers, layout) as site:
        seconds = [await _take_over(site, number) for number in range(count)]
    return {
        "takeover_lease_s": LEASE_S,
        "takeover_s_p50": median(seconds),
        "takeover_s_max": max(seconds),
    }


async def _take_over(site: ServerDeployment, number: int) -> float:
    dead, alive = PLACES[number % 2], PLACES[1 - number % 2]
    await site.wait_until_owned([site.fleet.pid(place) for place in PLACES])
    site.fleet.kill(dead)
    started = site.clock.monotonic()
    await site.wait_until_owned([site.fleet.pid(alive)])
    seconds = site.clock.monotonic() - started
    site.fleet.start(dead)
    return seconds


async def killed_workers(servers: BenchmarkServers, count: int) -> Figures:
    """Two workers are killed with -9 once a tenth of these diamonds have ended, and started again.

    A node takes 50 ms, so that every slot has one when it is killed.
    """
    layout = DeploymentLayout(
        workers=2,
        environ={
            "WORKER_HEARTBEAT_TIMEOUT": str(TIMEOUT_S),
            "WORKER_HEARTBEAT_INTERVAL": str(TIMEOUT_S / 4),
        },
    )
    async with open_server_deployment(servers, layout) as site, site.watch_completions() as ends:
        ids = await asyncio.gather(
            *[site.client.submit(build_napping_diamond()) for _ in range(count)]
        )
        waits = [ends.wait_until_completed(each) for each in ids]
        ended: list[float] = []
        killed_at = 0.0
        for wait in asyncio.as_completed(waits):
            ended.append(await wait)
            if len(ended) == max(1, count // 10):
                for place in ("worker-0", "worker-1"):
                    site.fleet.replace(place)
                killed_at = site.clock.monotonic()
    return {
        "killed_workers_finished": float(len(ended)),
        "killed_workers_s": max(ended) - killed_at,
    }


# Executions that were submitted while nobody decided: how fast they go once somebody does.

PLACE = "orchestrator-0"
BACKLOG_POLL_S = 0.1
CAUGHT_UP_WITHIN_S = 120.0
NODES = 4


async def backlog(site: ServerDeployment, count: int) -> Figures:
    """Without what submitting costs: the orchestrator is paused until all have been submitted."""
    ids = await _submit_to_nobody(site, count)
    return {"backlog_per_s": count / await _drain(site, ids)}


async def archive_down(site: ServerDeployment, count: int) -> Figures:
    """The same while PostgreSQL is stopped; then it is started, and asked for each of them.

    They are submitted before: a caller is told only of what the archive has.
    """
    postgres = site.servers.postgres
    if postgres is None:
        raise BrokenInvariantError("only a private PostgreSQL can be stopped")
    ids = await _submit_to_nobody(site, count)
    await asyncio.to_thread(postgres.stop)
    try:
        seconds = await _drain(site, ids)
    finally:
        await asyncio.to_thread(postgres.start)
    started = site.clock.monotonic()
    missing = await _missing(site.servers, ids, site.clock)
    return {
        "executions_per_s": count / seconds,
        "nodes_per_s": NODES * count / seconds,
        "caught_up_s": site.clock.monotonic() - started,
        "lost": float(missing),
    }


async def _submit_to_nobody(site: ServerDeployment, count: int) -> Sequence[ExecutionId]:
    site.fleet.pause(PLACE)
    return await asyncio.gather(*[site.client.submit(build_diamond()) for _ in range(count)])


async def _drain(site: ServerDeployment, ids: Sequence[ExecutionId]) -> float:
    async with site.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = site.clock.monotonic()
        site.fleet.resume(PLACE)
        return max(await asyncio.gather(*map(ends.wait_until_completed, ids))) - started


async def _missing(servers: BenchmarkServers, ids: Sequence[ExecutionId], clock: Clock) -> int:
    """How many of these the archive does not have as completed, with all of their nodes.

    None, as soon as that is so; else as many as are missing after a while.
    """
    schema = quote_identifier(servers.name)
    question = (
        f"SELECT count(*) FROM {schema}.executions WHERE id = ANY ($1) AND state = 'COMPLETED' "  # noqa: S608  # quoted
        f"AND $2 = (SELECT count(*) FROM {schema}.node_executions "
        "WHERE execution_id = executions.id AND node_executions.state = 'COMPLETED')"
    )
    end = clock.monotonic() + CAUGHT_UP_WITHIN_S
    async with asking(servers.postgres_url or "") as connection:
        while True:
            found: int = await connection.fetchval(question, ids, NODES)
            if found == len(ids) or clock.monotonic() > end:
                return len(ids) - found
            await clock.sleep(BACKLOG_POLL_S)
