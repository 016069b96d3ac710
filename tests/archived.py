"""Backends of two real servers, for tests."""

from itertools import count

import asyncpg

from runnel.backends.archived import ArchivedBackend
from runnel.ports.clock import Clock, Ids
from runnel.runtime.servers import PostgresServer, RedisServer
from tests.redis_server import empty

_numbers = count(1)


def fresh_schema() -> str:
    """The servers are shared by the tests of a process: each has a schema of its own."""
    return f"test {next(_numbers)}"


async def empty_archive(postgres: PostgresServer, schema: str) -> None:
    """A tenth of the time that a new schema takes."""
    connection = await asyncpg.connect(postgres.url)
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'versions'",
            schema,
        )
        for (table,) in tables:
            await connection.execute(f'DELETE FROM "{schema}".{table}')
    finally:
        await connection.close()


async def open_archived(
    redis: RedisServer,
    postgres: PostgresServer,
    clock: Clock,
    ids: Ids,
    *,
    partitions: int | None = 1,
    schema: str | None = None,
    journal_entries_max: int = 1_000,
) -> ArchivedBackend:
    """Without a schema it is a new archive, on a Redis that is emptied for it."""
    if schema is None:
        empty(redis)
    return await ArchivedBackend.open(
        redis.url,
        postgres.url,
        clock=clock,
        ids=ids,
        partitions=partitions,
        schema=schema or fresh_schema(),
        journal_entries_max=journal_entries_max,
    )
