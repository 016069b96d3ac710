"""`runnel trim`"""

from typing import TYPE_CHECKING, NamedTuple

from runnel.cli import exits
from runnel.cli.options import DataDir, Place, RedisUrl

if TYPE_CHECKING:
    from runnel.backends.redis import RedisBackend
    from runnel.ports.clock import Clock, Ids
    from runnel.ports.retention import Retention
    from runnel.settings import Settings


class Trimmed(NamedTuple):
    executions: int
    queues: int


def trim(*, data_dir: DataDir = None, redis_url: RedisUrl = None) -> int:
    """Delete what nobody needs any more, now.

    Executions that ended longer ago than RETENTION_<STATE>_DAYS; on a server, empty queues too.

    On servers, orchestrators do this by themselves. What is unfinished is never touched.
    """
    import asyncio

    from runnel.cli.options import configure
    from runnel.cli.words import count
    from runnel.runtime.clock import RealClock, RealIds

    settings = configure(Place(data_dir, redis_url))
    done = asyncio.run(_trim(settings, RealClock(), RealIds()))
    print(f"deleted: {count(done.executions, 'execution')}, {count(done.queues, 'empty queue')}")
    return exits.OK


async def _trim(settings: "Settings", clock: "Clock", ids: "Ids") -> Trimmed:
    from runnel.runtime.look import NoDataError, has_data
    from runnel.runtime.stores import open_archived, open_sqlite, open_unarchived

    if not settings.has_redis:
        if not has_data(settings):
            raise NoDataError(settings.data_dir)
        local = await open_sqlite(settings, clock, ids)
        try:
            return Trimmed(await _delete_old(local.retention, settings, clock), 0)
        finally:
            await local.close()
    if not settings.has_postgres:
        redis = await open_unarchived(settings, clock, ids)
        try:
            return Trimmed(0, await _forget_queues(redis))
        finally:
            await redis.close()
    both = await open_archived(settings, clock, ids)
    try:
        deleted = await _delete_old(both.retention, settings, clock)
        return Trimmed(deleted, await _forget_queues(both.redis))
    finally:
        await both.close()


async def _delete_old(retention: "Retention", settings: "Settings", clock: "Clock") -> int:
    from runnel.core.states import ExecutionState
    from runnel.engine.services.retention import RetentionService
    from runnel.telemetry.logs import LogTelemetry

    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    service = RetentionService(retention, clock, LogTelemetry(), days=days)
    deleted = 0
    while batch := await service.tick():
        deleted += batch
    return deleted


async def _forget_queues(backend: "RedisBackend") -> int:
    """A queue that gets a task meanwhile stays."""
    empty = [record for record in await backend.tasks.queues() if not record.depth]
    return sum([await backend.store.forget_queue(record) for record in empty])
