"""`runnel trim`"""

from typing import NamedTuple

from runnel.app.stores import (
    STORE_ONLY,
    NoDataError,
    has_data,
    open_archived,
    open_sqlite,
    open_unarchived,
)
from runnel.cli.options import DirectLocation, configure
from runnel.cli.render.text import format_count
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.retention import RetentionService
from runnel.errors import InputError
from runnel.ports import Backend
from runnel.ports.archive import Retention
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.telemetry.logs import LogTelemetry


class TrimResult(NamedTuple):
    """The numbers of deleted executions, queues and large values without execution (`blobs`)."""

    executions: int
    blobs: int
    queues: int = 0


async def trim(*, location: DirectLocation) -> None:
    """Delete expired executions and unused data now.

    The command deletes executions that ended more than RETENTION_<STATE>_DAYS ago, large values
    that no execution uses, and empty queues of a Redis server. Unfinished executions are never
    deleted.

    Orchestrators do the same regularly.
    """
    settings = configure(location)
    if settings.has_server:
        raise InputError(STORE_ONLY)
    result = await _trim(settings)
    parts = [
        format_count(result.executions, "execution"),
        format_count(result.queues, "empty queue"),
    ]
    if result.blobs:
        parts.append(f"{format_count(result.blobs, 'large value')} of no execution")
    print(f"deleted: {', '.join(parts)}")


async def _trim(settings: Settings) -> TrimResult:
    clock, ids = RealClock(), RandomIdGenerator()
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


async def _delete_old(retention: Retention, settings: Settings, clock: Clock) -> TrimResult:
    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    service = RetentionService(retention, clock, LogTelemetry(), days=days)
    deleted = 0
    while batch := await service.tick():
        deleted += batch
    return TrimResult(deleted, await service.sweep())


async def _forget_queues(backend: Backend) -> int:
    """Deletes empty queues and returns their number; a queue that gets a task meanwhile stays."""
    empty = [record for record in await backend.tasks.queues() if not record.depth]
    return sum([await backend.store.forget_queue(record) for record in empty])
