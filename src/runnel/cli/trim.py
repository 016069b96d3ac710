"""`runnel trim`"""

from typing import TYPE_CHECKING, NamedTuple

from runnel.cli import exits
from runnel.cli.options import DataDir, Place, RedisUrl

if TYPE_CHECKING:
    from runnel.ports.backend import Backend
    from runnel.ports.clock import Clock, Ids
    from runnel.ports.retention import Retention
    from runnel.settings import Settings


class Trimmed(NamedTuple):
    """`blobs` are large values that belonged to no execution."""

    executions: int
    blobs: int
    queues: int = 0


def trim(*, data_dir: DataDir = None, redis_url: RedisUrl = None) -> int:
    """Delete what nobody needs any more, now.

    Executions that ended longer ago than RETENTION_<STATE>_DAYS, and large values that belong to
    none; on a server, empty queues too.

    On servers, orchestrators do this by themselves. What is unfinished is never touched.
    """
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.words import count
    from runnel.errors import InputError
    from runnel.runtime.clock import RealClock, RealIds
    from runnel.runtime.look import STORE_ONLY

    settings = configure(Place(data_dir, redis_url))
    if settings.has_server:
        raise InputError(STORE_ONLY)
    done = asyncio.run(_trim(settings, RealClock(), RealIds()))
    parts = [count(done.executions, "execution"), count(done.queues, "empty queue")]
    if done.blobs:
        parts.append(f"{count(done.blobs, 'large value')} of no execution")
    print(f"deleted: {', '.join(parts)}")
    return exits.OK


async def _trim(settings: "Settings", clock: "Clock", ids: "Ids") -> Trimmed:
    from runnel.runtime.look import NoDataError, has_data
    from runnel.runtime.stores import open_archived, open_sqlite, open_unarchived

    if not settings.has_redis:
        if not has_data(settings):
            raise NoDataError(settings.data_dir)
        local = await open_sqlite(settings, clock, ids)
        try:
            return await _delete_old(local.retention, settings, clock)
        finally:
            await local.close()
    opens = open_archived if settings.has_postgres else open_unarchived
    server = await opens(settings, clock, ids)
    try:
        deleted = await _delete_old(server.retention, settings, clock)
        return deleted._replace(queues=await _forget_queues(server))
    finally:
        await server.close()


async def _delete_old(retention: "Retention", settings: "Settings", clock: "Clock") -> Trimmed:
    from runnel.core.states import ExecutionState
    from runnel.engine.services.retention import RetentionService
    from runnel.telemetry.logs import LogTelemetry

    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    service = RetentionService(retention, clock, LogTelemetry(), days=days)
    deleted = 0
    while batch := await service.tick():
        deleted += batch
    return Trimmed(deleted, await service.sweep())


async def _forget_queues(backend: "Backend") -> int:
    """A queue that gets a task meanwhile stays."""
    empty = [record for record in await backend.tasks.queues() if not record.depth]
    return sum([await backend.store.forget_queue(record) for record in empty])
