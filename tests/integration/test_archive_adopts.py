"""What a Redis without an archive has accepted, and nobody has begun, is not lost with one."""

import asyncio

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis_postgres.pairing import COMMANDS_AT_ONCE
from runnel.client.store_client import Client
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import FencedError, InputError, PartitionUnavailableError, StoreError
from runnel.notify.waiter import Ending
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Commit
from tests.archived import PARTITIONS, archived_engine, fresh_schema, open_archived, rows
from tests.driver import node, workflow
from tests.engines import Work
from tests.redis_server import empty

CHILD = workflow(node("x"))
TREE = workflow(node("a"), node("w", "a", handler="workflow", child=CHILD))
CHAIN = workflow(node("a"), node("b", "a"))
LARGE = {"text": "l" * 300_000}


async def accepted(redis: RedisServer, *, partitions: int) -> list[ExecutionId]:
    """By a Redis that nobody decides for: all wait, and the second is to be cancelled."""
    clock, ids = RealClock(), RealIds()
    backend = await RedisBackend.open(redis.url, clock=clock, ids=ids, partitions=partitions)
    client = Client(backend, clock, ids, ending_of=lambda _id: Ending())
    found = [await client.submit(each, LARGE) for each in (TREE, CHAIN)]
    found += [await client.submit(each) for each in [TREE, CHAIN] * 9]
    await client.cancel(found[1])
    await backend.close()
    return found


@pytest.mark.parametrize("partitions", [PARTITIONS, 16])
async def test_what_was_accepted_before_there_was_an_archive_runs_with_it(
    own_redis: RedisServer, shared_postgres: PostgresServer, partitions: int
) -> None:
    ids = await accepted(own_redis, partitions=partitions)

    async with archived_engine(
        own_redis, shared_postgres, Work(), schema=fresh_schema()
    ) as running:
        states = await running.ends(ids)

        assert states == ["COMPLETED", "CANCELLED", *["COMPLETED"] * 18]
        await running.archive_all()
        listed = await running.backend.archive.list_headers(ExecutionFilter(limit=100))
        assert {each.execution_id for each in listed} == set(ids)
        versions = await rows(
            running.backend,
            "SELECT DISTINCT definitions.version, executions.version FROM executions "
            "JOIN definitions ON definition = hash WHERE is_root ORDER BY 1",
        )
        assert versions == [(2, 2), (3, 3)]
        assert await rows(
            running.backend, "SELECT count(*) FROM commands WHERE applied_at IS NULL"
        ) == [(0,)]


async def test_it_survives_a_wipe_as_soon_as_the_archive_is_open(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    ids = await accepted(own_redis, partitions=16)
    schema = fresh_schema()
    backend = await open_archived(
        own_redis, shared_postgres, RealClock(), RealIds(), partitions=PARTITIONS, schema=schema
    )
    await backend.close()
    await asyncio.to_thread(own_redis.wipe)

    async with archived_engine(own_redis, shared_postgres, Work(), schema=schema) as running:
        states = await running.ends(ids)

        assert states == ["COMPLETED", "CANCELLED", *["COMPLETED"] * 18]


async def test_a_message_that_can_not_be_read_is_left_where_it_is(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    empty(shared_redis)
    plain = await RedisBackend.open(
        shared_redis.url, clock=RealClock(), ids=RealIds(), partitions=1
    )
    client = Client(plain, RealClock(), RealIds(), ending_of=lambda _id: Ending())
    for _ in range(COMMANDS_AT_ONCE):
        await client.submit(CHAIN)
    await plain.lines.call("XADD", f"{plain.keys.inbox}0", "*", "m", b"[1,{]")
    schema = fresh_schema()

    with pytest.raises(InputError, match="a message that can't be archived"):
        await open_archived(shared_redis, shared_postgres, RealClock(), RealIds(), schema=schema)

    assert await plain.lines.call("XLEN", f"{plain.keys.inbox}0") == COMMANDS_AT_ONCE + 1
    assert await plain.lines.call("HEXISTS", plain.keys.layout, "incarnation") == 0
    await plain.close()
    assert await recorded(shared_redis, shared_postgres, schema) == []


async def test_what_waits_in_a_redis_that_is_refused_is_not_recorded(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    empty(shared_redis)
    clock, ids = RealClock(), RealIds()
    plain = await RedisBackend.open(shared_redis.url, clock=clock, ids=ids, partitions=1)
    await plain.store.commit(await plain.store.acquire(0, "one"), Commit(sequence=1))
    await Client(plain, clock, ids, ending_of=lambda _id: Ending()).submit(CHAIN)
    await plain.close()
    schema = fresh_schema()

    with pytest.raises(InputError, match="executions that were never archived"):
        await open_archived(shared_redis, shared_postgres, clock, ids, schema=schema)

    assert await recorded(shared_redis, shared_postgres, schema) == []


async def test_an_orchestrator_of_before_there_was_an_archive_decides_nothing_more(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """What it commits would never be archived, and nothing that comes after it could be."""
    empty(shared_redis)
    clock, ids = RealClock(), RealIds()
    plain = await RedisBackend.open(shared_redis.url, clock=clock, ids=ids, partitions=1)
    lease = await plain.store.acquire(0, "one")

    backend = await open_archived(shared_redis, shared_postgres, clock, ids, schema=fresh_schema())

    with pytest.raises(FencedError):
        await plain.store.commit(lease, Commit(sequence=1))
    with pytest.raises(PartitionUnavailableError, match="POSTGRES_URL"):
        await plain.store.acquire(0, "one")
    with pytest.raises(StoreError, match="POSTGRES_URL"):
        await plain.store.attend("one")
    assert [each.owner for each in await backend.store.attend("two")] == ["two"]
    lease = await backend.store.restore(await backend.store.acquire(0, "two"))
    await backend.store.commit(lease, Commit(sequence=1))
    assert [each.sequence for each in await backend.journal.read(lease, after=0, limit=9)] == [1]
    await plain.close()
    await backend.close()


async def recorded(redis: RedisServer, postgres: PostgresServer, schema: str) -> list[object]:
    """What an empty Redis would be given to run by this archive."""
    empty(redis)
    backend = await open_archived(redis, postgres, RealClock(), RealIds(), schema=schema)
    found = await rows(
        backend, "SELECT execution_id FROM commands UNION ALL SELECT id FROM executions"
    )
    await backend.close()
    return [*found]
