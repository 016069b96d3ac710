"""Executions that were submitted while nobody decided: how fast they go once somebody does."""

import asyncio
from collections.abc import Sequence

from runnel.backends.postgres.migrations import quoted
from runnel.benchmarks.asking import asking
from runnel.benchmarks.figures import Figures
from runnel.benchmarks.on_servers import ServerSite
from runnel.benchmarks.servers import Servers
from runnel.benchmarks.submitting import REST_S
from runnel.benchmarks.workflows import diamond
from runnel.core.ids import ExecutionId
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock

PLACE = "orchestrator-0"
LOOK_EVERY_S = 0.1
CAUGHT_UP_WITHIN_S = 120.0
NODES = 4


async def backlog(site: ServerSite, count: int) -> Figures:
    """Without what submitting costs: the orchestrator is paused until all have been submitted."""
    ids = await _submit_to_nobody(site, count)
    return {"backlog_per_s": count / await _drain(site, ids)}


async def archive_down(site: ServerSite, count: int) -> Figures:
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


async def _submit_to_nobody(site: ServerSite, count: int) -> Sequence[ExecutionId]:
    site.fleet.pause(PLACE)
    return await asyncio.gather(*[site.client.submit(diamond()) for _ in range(count)])


async def _drain(site: ServerSite, ids: Sequence[ExecutionId]) -> float:
    async with site.ends(rest_s=REST_S) as ends:
        started = site.clock.monotonic()
        site.fleet.resume(PLACE)
        return max(await asyncio.gather(*map(ends.ended, ids))) - started


async def _missing(servers: Servers, ids: Sequence[ExecutionId], clock: Clock) -> int:
    """How many of these the archive does not have as completed, with all of their nodes.

    None, as soon as that is so; else as many as are missing after a while.
    """
    schema = quoted(servers.name)
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
            await clock.sleep(LOOK_EVERY_S)
