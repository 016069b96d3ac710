"""Opens backends and engines on a real Redis and a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, run_engine
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.database import PostgresOptions
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.archiver import Archiver, ArchiverOptions
from runnel.ports.clock import Clock, IdGenerator
from runnel.settings.model import Settings
from tests.engines import DEADLINE_S, WorkHandler, build_registry
from tests.redis_server import flush_server

LEASE_S = 0.5
PARTITIONS = 4

_numbers = count(1)


def make_schema_name() -> str:
    """Returns a new schema name: tests of a process share the servers, and each has its own
    schema.
    """
    return f"test {next(_numbers)}"


async def empty_archive(postgres: PostgresServer, schema: str) -> None:
    """Empties the tables, which takes a tenth of the time of a new schema."""
    connection = await asyncpg.connect(postgres.url)
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'versions'",
            schema,
        )
        statements = [f'DELETE FROM "{schema}".{table}' for (table,) in tables]
        if statements:  # the first time there are no tables yet
            await connection.execute("; ".join(statements))
    finally:
        await connection.close()


async def open_archived_backend(
    redis: RedisServer,
    postgres: PostgresServer,
    clock: Clock,
    ids: IdGenerator,
    *,
    partitions: int | None = 1,
    schema: str | None = None,
    journal_entries_max: int = 1_000,
    archive_call_s: float = 10.0,
) -> RedisPostgresBackend:
    """Opens the backend; without a schema, with a new archive and an emptied Redis."""
    if schema is None:
        flush_server(redis)
    return await RedisPostgresBackend.open(
        redis.url,
        postgres.url,
        RedisOptions(partitions=partitions, journal_entries_max=journal_entries_max),
        PostgresOptions(schema=schema or make_schema_name(), call_timeout_s=archive_call_s),
        clock=clock,
        ids=ids,
    )


class ArchivedEngine:
    """An engine with an archiver, and the parts that tests inspect."""

    def __init__(
        self, engine: EmbeddedEngine, backend: RedisPostgresBackend, archiver: Archiver
    ) -> None:
        self.engine = engine
        self.client = engine.client
        self.backend = backend
        self.archiver = archiver

    async def submit_all(self, definitions: Sequence[Workflow]) -> list[ExecutionId]:
        return list(
            await asyncio.gather(
                *[
                    self.client.submit(definition, {"items": [1, 2, 3, 4]})
                    for definition in definitions
                ]
            )
        )

    async def ends(self, ids: Sequence[ExecutionId]) -> list[str]:
        """Waits for the final states."""
        waits = [
            self.client.wait_for_end(execution_id, timeout_s=DEADLINE_S) for execution_id in ids
        ]
        return [str(header.state) for header in await asyncio.gather(*waits)]

    async def archive_all(self) -> None:
        """Waits until all journals are empty."""
        async with asyncio.timeout(DEADLINE_S):
            while sum(
                [await self.backend.journal.length(partition) for partition in range(PARTITIONS)]
            ):
                await self.backend.ledger.cursor(0)


@asynccontextmanager
async def open_archived_engine(
    redis: RedisServer,
    postgres: PostgresServer,
    work: WorkHandler,
    *,
    schema: str | None = None,
    keep_s: float = 60.0,
    flush_s: float = 0.05,
    alarm_s: float = 10.0,
    resend_s: float = 10.0,
    journal_entries_max: int = 1_000,
    archive_call_s: float = 10.0,
) -> AsyncIterator[ArchivedEngine]:
    """Opens an engine that owns every free partition and has compared it with the archive.

    A lease lasts half a second.
    """
    clock, ids = RealClock(), RandomIdGenerator()
    backend = await open_archived_backend(
        redis,
        postgres,
        clock,
        ids,
        partitions=PARTITIONS,
        schema=schema,
        journal_entries_max=journal_entries_max,
        archive_call_s=archive_call_s,
    )
    settings = Settings(
        lease_s=LEASE_S, worker_concurrency=16, shutdown_timeout_s=0.2, heartbeat_interval_s=0.3
    )
    engine = EmbeddedEngine(backend, build_registry(work), ClockAndIds(clock, ids), settings)
    archiver = Archiver(
        backend.journal,
        backend.ledger,
        clock,
        engine.event_bus,
        hot_blobs=backend.hot_blobs,
        cold_blobs=backend.cold_blobs,
        leases=engine.leases,
        options=ArchiverOptions(flush_s=flush_s, alarm_s=alarm_s, keep_s=keep_s, resend_s=resend_s),
    )
    stop = asyncio.Event()
    async with run_engine(engine, adopts=True), asyncio.TaskGroup() as group:
        group.create_task(archiver.run(stop))
        async with asyncio.timeout(DEADLINE_S):
            await engine.recovered.wait()
        try:
            yield ArchivedEngine(engine, backend, archiver)
        finally:
            stop.set()


async def fetch_rows(
    backend: RedisPostgresBackend, statement: str, *values: object
) -> list[tuple[Any, ...]]:
    async with backend.database.transaction() as connection:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
