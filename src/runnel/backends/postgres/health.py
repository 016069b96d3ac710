"""Read-only inspection of a PostgreSQL server and of the archive in it."""

from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec

from runnel.backends.postgres.database import (
    DRIVER_ERRORS,
    NO_REDIS,
    PairedRedis,
    PostgresOptions,
)
from runnel.backends.postgres.migrations import (
    find_migration_version,
    load_migrations,
    quote_identifier,
)
from runnel.errors import StoreError
from runnel.ports.clock import Clock

# The first schema version with a table for quarantined entries.
QUARANTINE_VERSION = find_migration_version("set_aside")
# The first schema version that stores the paired Redis.
PAIRING_VERSION = find_migration_version("redis_identity")


class ArchiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the archive.

    `schema_version` and `incarnation` are None before an orchestrator has opened the archive.
    `newest_version` is the schema version of this Runnel. `clock_ahead_s` is the number of seconds
    by which the server's clock is ahead of the local clock. `quarantined` is the number of
    executions with refused entries. `unreadable` is the number of commands that can't be decoded.
    """

    version: int
    version_text: str
    encoding: str
    schema_version: int | None
    newest_version: int
    incarnation: str | None
    clock_ahead_s: float
    quarantined: int = 0
    unreadable: int = 0
    redis: PairedRedis = NO_REDIS
    cursors: Mapping[int, int] = {}
    """The last archived commit of each partition."""


async def read_archive_facts(url: str, options: PostgresOptions, clock: Clock) -> ArchiveFacts:
    """Reads the facts about the archive; raises StoreError if the server can't be used."""
    try:
        connection = await asyncpg.connect(
            url, timeout=options.call_timeout_s, command_timeout=options.call_timeout_s
        )
        try:
            return await _read_facts(connection, clock, options.schema)
        finally:
            connection.terminate()
    except DRIVER_ERRORS as error:
        raise StoreError(f"PostgreSQL: {type(error).__name__}: {error}") from error


async def _read_facts(connection: Any, clock: Clock, schema: str) -> ArchiveFacts:
    before = clock.now()
    server_time = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
    middle = (before + clock.now()) / 2
    has_archive = await connection.fetchval(
        "SELECT count(*) = 2 FROM pg_tables "
        "WHERE schemaname = $1 AND tablename IN ('versions', 'meta')",
        schema,
    )
    version = incarnation = None
    if has_archive:
        name = quote_identifier(schema)
        version = await connection.fetchval(f"SELECT max(version) FROM {name}.versions")  # noqa: S608  # quoted
        incarnation = await connection.fetchval(f"SELECT incarnation FROM {name}.meta")  # noqa: S608  # quoted
    quarantined = unreadable = 0
    if version is not None and version >= QUARANTINE_VERSION:
        quarantined = await connection.fetchval(
            f"SELECT count(DISTINCT digest) FROM {quote_identifier(schema)}.set_aside"  # noqa: S608  # quoted
        )
        unreadable = await connection.fetchval(
            f"SELECT count(*) FROM {quote_identifier(schema)}.commands WHERE problem IS NOT NULL"  # noqa: S608  # quoted
        )
    redis = NO_REDIS
    if version is not None and version >= PAIRING_VERSION:
        row = await connection.fetchrow(
            f"SELECT redis_id, redis_places FROM {quote_identifier(schema)}.meta"  # noqa: S608  # quoted
        )
        redis = NO_REDIS if row is None else PairedRedis(*row)
    cursors = []
    if version is not None:
        cursors = await connection.fetch(
            f"SELECT partition, sequence FROM {quote_identifier(schema)}.cursors"  # noqa: S608  # quoted
        )
    shown = await connection.fetchval("SHOW server_version")
    return ArchiveFacts(
        version=int(await connection.fetchval("SHOW server_version_num")) // 10_000,
        version_text=str(shown).partition(" ")[0],
        encoding=str(await connection.fetchval("SHOW server_encoding")),
        schema_version=version,
        newest_version=max(load_migrations()),
        incarnation=incarnation,
        clock_ahead_s=server_time - middle,
        quarantined=quarantined,
        unreadable=unreadable,
        redis=redis,
        cursors=dict(map(tuple, cursors)),
    )
