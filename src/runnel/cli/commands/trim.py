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
from runnel.cli.streams import print_to_stderr
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.retention import RetentionService
from runnel.errors import InputError
from runnel.ports import Backend
from runnel.ports.archive import Retention
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.telemetry.logs import LogTelemetry

MEGABYTE = 1_000_000
NOT_SHRUNK = (
    "the file of this data directory was made by an earlier Runnel and did not shrink: run "
    "'runnel trim' once while no engine uses the directory and the disk has room for a copy"
)


class TrimResult(NamedTuple):
    """The numbers of deleted executions, queues and large values without execution (`blobs`).

    `freed_bytes` is None if a data directory could not return its free space.
    """

    executions: int
    blobs: int
    queues: int = 0
    freed_bytes: int | None = 0


async def trim(*, location: DirectLocation) -> None:
    """Delete expired executions and unused data now.

    The command deletes executions that ended more than RETENTION_<STATE>_DAYS ago, large values
    that no execution uses, and empty queues of a Redis server. Unfinished executions are never
    deleted. A data directory returns the free space to the disk, except for a tenth of its file.

    Orchestrators do the same regularly. Engines that use a data directory continue meanwhile.
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
    if result.freed_bytes is None:
        print_to_stderr(NOT_SHRUNK)
    elif result.freed_bytes >= MEGABYTE:
        print(f"freed: {result.freed_bytes / MEGABYTE:.0f} MB")


async def _trim(settings: Settings) -> TrimResult:
    clock, ids = RealClock(), RandomIdGenerator()
    if not settings.has_redis:
        if not has_data(settings):
            raise NoDataError(settings.data_dir)
        local = await open_sqlite(settings, clock, ids)
        try:
            result = await _delete_old(local.retention, settings, clock)
            return result._replace(freed_bytes=await local.release_space())
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
