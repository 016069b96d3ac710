"""Pending commands of a Redis without an archive are not lost when it gets one."""

import asyncio

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis_postgres.archive_ownership import COMMAND_PAGE_SIZE
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import FencedError, InputError, PartitionUnavailableError, StoreError
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import (
    PARTITIONS,
    fetch_rows,
    make_schema_name,
    open_archived_backend,
    open_archived_engine,
)
from tests.redis_server import flush_server

CHILD = make_workflow(make_node("x"))
TREE = make_workflow(make_node("a"), make_node("w", "a", handler="workflow", child=CHILD))
CHAIN = make_workflow(make_node("a"), make_node("b", "a"))
LARGE = {"text": "l" * 300_000}


async def accepted(redis: RedisServer, *, partitions: int) -> list[ExecutionId]:
    """Submits executions to a Redis without orchestrators, and cancels the second one."""
    clock, ids = RealClock(), RandomIdGenerator()
    backend = await RedisBackend.open(
        redis.url, RedisOptions(partitions=partitions), clock=clock, ids=ids
    )
    client = StoreClient(backend, clock, ids, get_completion=lambda _id: Completion())
    submitted = [await client.submit(workflow, LARGE) for workflow in (TREE, CHAIN)]
    submitted += [await client.submit(workflow) for workflow in [TREE, CHAIN] * 9]
    await client.cancel(submitted[1])
    await backend.close()
    return submitted


@pytest.mark.parametrize("partitions", [PARTITIONS, 16])
async def test_commands_accepted_before_there_was_an_archive_run_with_it(
    own_redis: RedisServer, shared_postgres: PostgresServer, partitions: int
) -> None:
    ids = await accepted(own_redis, partitions=partitions)

    async with open_archived_engine(
        own_redis, shared_postgres, WorkHandler(), schema=make_schema_name()
    ) as running:
        states = await running.ends(ids)

        assert states == ["COMPLETED", "CANCELLED", *["COMPLETED"] * 18]
        await running.archive_all()
        listed = await running.backend.archive.list_headers(ExecutionFilter(limit=100))
        assert {header.execution_id for header in listed} == set(ids)
        versions = await fetch_rows(
            running.backend,
            "SELECT DISTINCT definitions.version, executions.version FROM executions "
            "JOIN definitions ON definition = hash WHERE is_root ORDER BY 1",
        )
        assert versions == [(2, 2), (3, 3)]
        assert await fetch_rows(
            running.backend, "SELECT count(*) FROM commands WHERE applied_at IS NULL"
        ) == [(0,)]


async def test_imported_commands_survive_a_wipe_of_redis_once_the_archive_is_open(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    ids = await accepted(own_redis, partitions=16)
    schema = make_schema_name()
    backend = await open_archived_backend(
        own_redis,
        shared_postgres,
        RealClock(),
        RandomIdGenerator(),
        partitions=PARTITIONS,
        schema=schema,
    )
    await backend.close()
    await asyncio.to_thread(own_redis.wipe)

    async with open_archived_engine(
        own_redis, shared_postgres, WorkHandler(), schema=schema
    ) as running:
        states = await running.ends(ids)

        assert states == ["COMPLETED", "CANCELLED", *["COMPLETED"] * 18]


async def test_an_unreadable_message_stays_in_its_inbox(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    plain = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    client = StoreClient(
        plain, RealClock(), RandomIdGenerator(), get_completion=lambda _id: Completion()
    )
    for _ in range(COMMAND_PAGE_SIZE):
        await client.submit(CHAIN)
    await plain.pool.call("XADD", f"{plain.keys.inbox}0", "*", "m", b"[1,{]")
    schema = make_schema_name()

    with pytest.raises(InputError, match="a message that can't be archived"):
        await open_archived_backend(
            shared_redis, shared_postgres, RealClock(), RandomIdGenerator(), schema=schema
        )

    assert await plain.pool.call("XLEN", f"{plain.keys.inbox}0") == COMMAND_PAGE_SIZE + 1
    assert await plain.pool.call("HEXISTS", plain.keys.layout, "incarnation") == 0
    await plain.close()
    assert await recorded(shared_redis, shared_postgres, schema) == []


async def test_the_messages_of_a_refused_redis_are_not_recorded(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    clock, ids = RealClock(), RandomIdGenerator()
    plain = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=clock, ids=ids
    )
    await plain.store.commit(await plain.store.acquire(0, "one"), Commit(sequence=1))
    await StoreClient(plain, clock, ids, get_completion=lambda _id: Completion()).submit(CHAIN)
    await plain.close()
    schema = make_schema_name()

    with pytest.raises(InputError, match="executions that were never archived"):
        await open_archived_backend(shared_redis, shared_postgres, clock, ids, schema=schema)

    assert await recorded(shared_redis, shared_postgres, schema) == []


async def test_an_orchestrator_started_before_the_archive_makes_no_more_decisions(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """Its commits would never be archived, and later commits could not be archived either."""
    flush_server(shared_redis)
    clock, ids = RealClock(), RandomIdGenerator()
    plain = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=clock, ids=ids
    )
    lease = await plain.store.acquire(0, "one")

    backend = await open_archived_backend(
        shared_redis, shared_postgres, clock, ids, schema=make_schema_name()
    )

    with pytest.raises(FencedError):
        await plain.store.commit(lease, Commit(sequence=1))
    with pytest.raises(PartitionUnavailableError, match="POSTGRES_URL"):
        await plain.store.acquire(0, "one")
    with pytest.raises(StoreError, match="POSTGRES_URL"):
        await plain.store.heartbeat_orchestrator("one")
    assert [
        orchestrator.owner for orchestrator in await backend.store.heartbeat_orchestrator("two")
    ] == ["two"]
    lease = await backend.store.restore(await backend.store.acquire(0, "two"))
    await backend.store.commit(lease, Commit(sequence=1))
    assert [entry.sequence for entry in await backend.journal.read(lease, after=0, limit=9)] == [1]
    await plain.close()
    await backend.close()


async def recorded(redis: RedisServer, postgres: PostgresServer, schema: str) -> list[object]:
    """Returns the commands that an empty Redis would get from this archive."""
    flush_server(redis)
    backend = await open_archived_backend(
        redis, postgres, RealClock(), RandomIdGenerator(), schema=schema
    )
    rows = await fetch_rows(
        backend, "SELECT execution_id FROM commands UNION ALL SELECT id FROM executions"
    )
    await backend.close()
    return [*rows]
