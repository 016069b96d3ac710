"""What a PostgreSQL server tells about itself and about the archive in it; changes nothing."""

from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec

from runnel.backends.postgres.database import DRIVER_ERRORS, NO_REDIS, RedisSide
from runnel.backends.postgres.migrations import migrations, quoted, version_of
from runnel.errors import StoreError
from runnel.ports.clock import Clock

# The first schema in which something can be set aside.
SET_ASIDE_VERSION = version_of("set_aside")
# The first one that knows its Redis.
REDIS_SIDE_VERSION = version_of("redis_identity")


class ArchiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`schema_version` and `incarnation` are None before an orchestrator has opened it.

    `ahead_s` is how much later its clock is; `newest_version` is that of this Runnel; `set_aside`
    are executions of which it would not take something, `unreadable` commands.
    """

    version: int
    version_text: str
    encoding: str
    schema_version: int | None
    newest_version: int
    incarnation: str | None
    ahead_s: float
    set_aside: int = 0
    unreadable: int = 0
    redis: RedisSide = NO_REDIS
    cursors: Mapping[int, int] = {}
    """The last commit that is archived of each partition."""


async def archive_facts(url: str, clock: Clock, *, schema: str, call_s: float) -> ArchiveFacts:
    """Raises StoreError when the server can't be used."""
    try:
        connection = await asyncpg.connect(url, timeout=call_s, command_timeout=call_s)
        try:
            return await _facts(connection, clock, schema)
        finally:
            connection.terminate()
    except DRIVER_ERRORS as error:
        raise StoreError(f"PostgreSQL: {type(error).__name__}: {error}") from error


async def _facts(connection: Any, clock: Clock, schema: str) -> ArchiveFacts:
    before = clock.now()
    there = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
    middle = (before + clock.now()) / 2
    has_archive = await connection.fetchval(
        "SELECT count(*) = 2 FROM pg_tables "
        "WHERE schemaname = $1 AND tablename IN ('versions', 'meta')",
        schema,
    )
    version = incarnation = None
    if has_archive:
        version = await connection.fetchval(f"SELECT max(version) FROM {quoted(schema)}.versions")  # noqa: S608  # quoted
        incarnation = await connection.fetchval(f"SELECT incarnation FROM {quoted(schema)}.meta")  # noqa: S608  # quoted
    set_aside = unreadable = 0
    if version is not None and version >= SET_ASIDE_VERSION:
        set_aside = await connection.fetchval(
            f"SELECT count(DISTINCT digest) FROM {quoted(schema)}.set_aside"  # noqa: S608  # quoted
        )
        unreadable = await connection.fetchval(
            f"SELECT count(*) FROM {quoted(schema)}.commands WHERE problem IS NOT NULL"  # noqa: S608  # quoted
        )
    redis = NO_REDIS
    if version is not None and version >= REDIS_SIDE_VERSION:
        side = await connection.fetchrow(
            f"SELECT redis_id, redis_places FROM {quoted(schema)}.meta"  # noqa: S608  # quoted
        )
        redis = NO_REDIS if side is None else RedisSide(*side)
    cursors = []
    if version is not None:
        cursors = await connection.fetch(
            f"SELECT partition, sequence FROM {quoted(schema)}.cursors"  # noqa: S608  # quoted
        )
    shown = await connection.fetchval("SHOW server_version")
    return ArchiveFacts(
        version=int(await connection.fetchval("SHOW server_version_num")) // 10_000,
        version_text=str(shown).partition(" ")[0],
        encoding=str(await connection.fetchval("SHOW server_encoding")),
        schema_version=version,
        newest_version=max(migrations()),
        incarnation=incarnation,
        ahead_s=there - middle,
        set_aside=set_aside,
        unreadable=unreadable,
        redis=redis,
        cursors=dict(map(tuple, cursors)),
    )
