"""A feed position survives its process and server, and every loss of data shows as a gap."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.feed_log import ENTRIES_MAX, PAGE_ENTRIES_MAX
from runnel.backends.memory import MemoryBackend
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.archiver import Archiver
from runnel.errors import StoreError
from runnel.notify.event_bus import EventBus
from runnel.ports import Backend
from runnel.ports.feed import FeedPage, FeedPosition
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.feed import make_changes, make_creation, read_states
from runnel.testing.conformance.suite import READ_LIMIT, LeaseOwner, make_header
from tests.redis_postgres import make_schema_name, open_archived_backend
from tests.redis_server import flush_server

OVERFULL = ENTRIES_MAX + 2_000
# After this number of commits, every store has trimmed its feed.
OFTEN = 500


async def owner_of(backend: Backend) -> LeaseOwner:
    partition = await backend.claim_home_partition("one")
    held = await backend.store.observe(partition)
    lease = await backend.store.acquire(partition, "one", expected=held)
    return LeaseOwner(backend.store, await backend.store.restore(lease))


async def read_once_it_answers(backend: Backend, after: FeedPosition) -> FeedPage:
    while True:
        try:
            return await backend.feed.read(after, limit=READ_LIMIT, wait_s=0)
        except StoreError:
            continue


@asynccontextmanager
async def opened_redis(server: RedisServer) -> AsyncIterator[RedisBackend]:
    backend = await RedisBackend.open(
        server.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    try:
        yield backend
    finally:
        await backend.close()


# -- restarts ----------------------------------------------------------------------------------


async def test_a_feed_position_in_a_data_directory_survives_its_process(tmp_path: Path) -> None:
    first = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds("a"))
    owner = await owner_of(first)
    await owner.commit(make_changes("x1"))
    end = await first.feed.end()
    await owner.commit(make_changes("x2"))
    await first.close()

    second = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds("b"))

    assert await read_states(second.feed, end) == [("x2", None)]
    await second.close()


async def test_writes_of_another_process_to_a_data_directory_are_published(tmp_path: Path) -> None:
    clock = RealClock()
    writing = await SqliteBackend.open(tmp_path, clock=clock, ids=RandomIdGenerator())
    reading = await SqliteBackend.open(tmp_path, clock=clock, ids=RandomIdGenerator())
    end = await reading.feed.end()
    owner = await owner_of(writing)

    async with asyncio.TaskGroup() as group:
        states = group.create_task(read_states(reading.feed, end, wait_s=60))
        await asyncio.sleep(0)
        await owner.commit(make_changes("x1"))

    assert states.result() == [("x1", None)]
    await reading.close()
    await writing.close()


async def test_a_position_of_a_recreated_data_directory_is_a_gap(tmp_path: Path) -> None:
    former = await SqliteBackend.open(tmp_path / "former", clock=FakeClock(), ids=FakeIds())
    end = await former.feed.end()
    await former.close()
    backend = await SqliteBackend.open(tmp_path / "new", clock=FakeClock(), ids=FakeIds())

    page = await backend.feed.read(end, limit=READ_LIMIT, wait_s=0)

    assert page.has_gap
    assert page.position == await backend.feed.end()
    await backend.close()


async def test_a_position_survives_a_restart_of_the_server(own_redis: RedisServer) -> None:
    async with opened_redis(own_redis) as backend:
        owner = await owner_of(backend)
        await owner.commit(make_changes("x1"))
        end = await backend.feed.end()
        await owner.commit(make_changes("x2"))
        own_redis.restart()

        page = await read_once_it_answers(backend, end)

    assert [change.execution_id for change in page.changes] == ["x2"]
    assert not page.has_gap


async def test_a_waiting_reader_gets_an_error_if_the_server_dies(own_redis: RedisServer) -> None:
    async with opened_redis(own_redis) as backend:
        end = await backend.feed.end()
        reading = asyncio.gather(
            backend.feed.read(end, limit=READ_LIMIT, wait_s=60), return_exceptions=True
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(own_redis.kill)

        (outcome,) = await reading

    assert isinstance(outcome, StoreError)


async def test_a_server_that_was_wiped_has_a_gap(own_redis: RedisServer) -> None:
    async with opened_redis(own_redis) as backend:
        await (await owner_of(backend)).commit(make_changes("x1"))
        end = await backend.feed.end()
        flush_server(own_redis)

        page = await backend.feed.read(end, limit=READ_LIMIT, wait_s=60)
        assert page.has_gap

        await backend.mailbox.send([make_creation("x1")])
        assert await read_states(backend.feed, page.position) == [("x1", ExecutionState.PENDING)]


async def test_a_server_that_is_wiped_under_a_reader_has_a_gap(own_redis: RedisServer) -> None:
    async with opened_redis(own_redis) as backend:
        end = await backend.feed.end()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(backend.feed.read(end, limit=READ_LIMIT, wait_s=60))
            await asyncio.sleep(0)
            flush_server(own_redis)
            await backend.mailbox.send([make_creation("x1")])

    assert reading.result().has_gap


# -- an archive --------------------------------------------------------------------------------


@asynccontextmanager
async def opened_archived(
    redis: RedisServer, postgres: PostgresServer, schema: str
) -> AsyncIterator[RedisPostgresBackend]:
    backend = await open_archived_backend(
        redis, postgres, RealClock(), RandomIdGenerator(), schema=schema
    )
    try:
        yield backend
    finally:
        await backend.close()


async def archive_all(backend: RedisPostgresBackend, owner: LeaseOwner) -> None:
    archiver = Archiver(
        backend.journal,
        backend.ledger,
        RealClock(),
        EventBus(),
        hot_blobs=backend.hot_blobs,
        cold_blobs=backend.cold_blobs,
        leases=lambda: [owner.lease],
    )
    await archiver.tick()


async def test_changes_restored_from_the_archive_are_a_gap_for_readers_that_missed_them(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    async with opened_archived(own_redis, shared_postgres, schema) as backend:
        owner = await owner_of(backend)
        await owner.commit(make_changes("x1", headers=[make_header("x1")]))
        end = await backend.feed.end()
        earlier = await asyncio.to_thread(own_redis.save_aof)
        await owner.commit(
            make_changes("x1", headers=[make_header("x1", state=ExecutionState.FAILED)])
        )
        await archive_all(backend, owner)
        await asyncio.to_thread(own_redis.restore_aof, earlier)

        before = await read_once_it_answers(backend, end)
        await owner_of(backend)
        after = await backend.feed.read(end, limit=READ_LIMIT, wait_s=0)

    assert (before.has_gap, list(before.changes)) == (False, [])
    assert after.has_gap


async def test_a_restart_without_data_loss_is_not_a_gap(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    async with opened_archived(own_redis, shared_postgres, schema) as backend:
        owner = await owner_of(backend)
        await owner.commit(make_changes("x1", headers=[make_header("x1")]))
        await archive_all(backend, owner)
        end = await backend.feed.end()
        await asyncio.to_thread(own_redis.restart)
        await read_once_it_answers(backend, end)

        owner = await owner_of(backend)
        await owner.commit(make_changes("x1"))

        assert await read_states(backend.feed, end) == [("x1", None)]


# -- limits -------------------------------------------------------------------------------------


async def test_the_length_of_a_feed_in_memory_is_limited() -> None:
    backend = MemoryBackend(FakeClock(), FakeIds())
    start = await backend.feed.end()
    backend.state.change_log.add(["-x1"] * OVERFULL)
    end = await backend.feed.end()
    owner = await owner_of(backend)

    for _ in range(OFTEN):
        await owner.commit(make_changes("x1"))

    assert (await backend.feed.read(start, limit=1, wait_s=0)).has_gap
    assert len(await read_states(backend.feed, end)) == min(OFTEN, PAGE_ENTRIES_MAX - 1)


async def test_the_length_of_a_feed_in_a_data_directory_is_limited(tmp_path: Path) -> None:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    start = await backend.feed.end()
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
        db.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ?) "
            "INSERT INTO feed (changes) SELECT '-x1' FROM numbers",
            (OVERFULL,),
        )
        owner = await owner_of(backend)

        for _ in range(OFTEN):
            await owner.commit(make_changes("x1"))

        (kept,) = db.execute("SELECT count(*) FROM feed").fetchone()
    assert ENTRIES_MAX <= kept <= ENTRIES_MAX + OFTEN
    assert (await backend.feed.read(start, limit=1, wait_s=0)).has_gap
    await backend.close()


async def test_the_length_of_a_feed_on_a_server_is_limited(shared_redis: RedisServer) -> None:
    flush_server(shared_redis)
    async with opened_redis(shared_redis) as backend:
        start, key = await backend.feed.end(), backend.keys.feed
        fill = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'c', '-x1') end"
        await backend.pool.call("EVAL", fill, 1, key, OVERFULL)

        await (await owner_of(backend)).commit(make_changes("x1"))

        kept = await backend.pool.call("XLEN", key)
        assert (await backend.feed.read(start, limit=1, wait_s=0)).has_gap
    assert ENTRIES_MAX <= kept <= ENTRIES_MAX + OFTEN
