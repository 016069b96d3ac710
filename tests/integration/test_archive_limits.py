"""Refusals: servers that do not belong together, and more commits than can be archived."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import make_blob_reference
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.archiver import Archiver
from runnel.errors import ArchiveBehindError, ArchiveGapError, FencedError, InputError
from runnel.notify.event_bus import EventBus
from runnel.ports.archive import ExecutionFilter
from runnel.ports.journal import JournalEntry
from runnel.ports.store import Commit, HistoryRecord, Lease
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_header, make_message
from tests.redis_postgres import fetch_rows, make_schema_name, open_archived_backend
from tests.redis_server import flush_server

MOST = 10


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def backend(
    shared_redis: RedisServer, shared_postgres: PostgresServer, clock: FakeClock
) -> AsyncIterator[RedisPostgresBackend]:
    opened = await open_archived_backend(
        shared_redis, shared_postgres, clock, FakeIds(), journal_entries_max=MOST
    )
    yield opened
    await opened.close()


@pytest.fixture
async def lease(backend: RedisPostgresBackend) -> Lease:
    return await backend.store.restore(await backend.store.acquire(0, "one"))


def archiver_of(backend: RedisPostgresBackend, clock: FakeClock, lease: Lease) -> Archiver:
    return Archiver(
        backend.journal,
        backend.ledger,
        clock,
        EventBus(),
        hot_blobs=backend.hot_blobs,
        cold_blobs=backend.cold_blobs,
        leases=lambda: [lease],
    )


def creation(id_: str = "x1") -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(id_),
        workflow="w",
        definition=DefinitionHash("d"),
        version=1,
        created_at=1.0,
    )


async def fill(backend: RedisPostgresBackend, lease: Lease, upto: int) -> None:
    for sequence in range(1, upto + 1):
        await backend.store.commit(lease, Commit(sequence=sequence))


async def test_new_executions_are_refused_before_the_journal_is_full(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await fill(backend, lease, MOST * 8 // 10)

    with pytest.raises(ArchiveBehindError, match="the archive is behind: 8 commits"):
        await backend.mailbox.send([creation()])
    await backend.mailbox.send([make_message("of one that runs")])
    await backend.store.commit(lease, Commit(sequence=9))

    assert await backend.archive.get_header(ExecutionId("x1")) is None
    assert await fetch_rows(backend, "SELECT kind FROM commands") == [("CancelExecution",)]


async def test_a_commit_waits_for_a_free_place_in_the_journal_and_nothing_is_lost(
    backend: RedisPostgresBackend, lease: Lease, clock: FakeClock
) -> None:
    await fill(backend, lease, MOST)
    archiver = archiver_of(backend, clock, lease)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(
            backend.store.commit(lease, Commit(sequence=MOST + 1, headers=[make_header()]))
        )
        await clock.wait_for_sleeper()
        assert await backend.journal.length(0) == MOST
        await archiver.tick()
        await clock.advance(1)
        await waiting

    assert await backend.journal.length(0) == 1
    assert (await backend.ledger.cursor(0)).sequence == MOST


async def test_a_commit_that_finds_the_journal_full_fails_without_a_write(
    backend: RedisPostgresBackend, lease: Lease, clock: FakeClock
) -> None:
    await fill(backend, lease, MOST)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(refusal(backend, lease))
        while not waiting.done():
            await clock.advance(1)
            await asyncio.sleep(0)

    assert waiting.result() == MOST
    assert await backend.archive.get_header(make_header().execution_id) is None


async def refusal(backend: RedisPostgresBackend, lease: Lease) -> int:
    with pytest.raises(ArchiveBehindError) as refused:
        await backend.store.commit(lease, Commit(sequence=MOST + 1, headers=[make_header()]))
    return refused.value.found


async def test_a_message_after_its_deadline_is_left_to_the_owner(
    backend: RedisPostgresBackend,
) -> None:
    sent = await RedisMailbox(backend.redis.pool, backend.redis.keys, backend.redis.layout).deliver(
        [creation()], deadline_at=1.0
    )

    assert not sent
    assert await backend.redis.archive.get_header(ExecutionId("x1")) is None


async def test_a_large_input_is_archived_with_the_command(backend: RedisPostgresBackend) -> None:
    command = creation()
    with_blob = CreateExecution(
        **{name: getattr(command, name) for name in CreateExecution.__struct_fields__}
        | {"input": make_blob_reference("x1/input/1", 5)}
    )

    await backend.mailbox.send([with_blob], blobs={"x1/input/1": b"large"})

    assert await backend.hot_blobs.get("x1/input/1") == b"large"
    assert await backend.cold_blobs.get("x1/input/1") == b"large"


async def test_a_redis_of_another_archive_is_refused(
    shared_redis: RedisServer, shared_postgres: PostgresServer, backend: RedisPostgresBackend
) -> None:
    with pytest.raises(InputError, match="this Redis belongs to the archive"):
        await open_archived_backend(
            shared_redis,
            shared_postgres,
            RealClock(),
            RandomIdGenerator(),
            schema=make_schema_name(),
        )


async def test_a_redis_with_executions_without_an_archive_is_refused(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    flush_server(shared_redis)
    plain = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    await plain.store.commit(await plain.store.acquire(0, "one"), Commit(sequence=1))
    await plain.close()

    with pytest.raises(InputError, match="executions that were never archived"):
        await open_archived_backend(
            shared_redis,
            shared_postgres,
            RealClock(),
            RandomIdGenerator(),
            schema=make_schema_name(),
        )


async def test_an_archive_keeps_its_number_of_partitions(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    flush_server(shared_redis)
    first = await open_archived_backend(
        shared_redis, shared_postgres, RealClock(), RandomIdGenerator(), partitions=3, schema=schema
    )
    await first.close()

    with pytest.raises(InputError, match="the archive has 3 partitions"):
        await open_archived_backend(
            shared_redis,
            shared_postgres,
            RealClock(),
            RandomIdGenerator(),
            partitions=4,
            schema=schema,
        )
    second = await open_archived_backend(
        shared_redis,
        shared_postgres,
        RealClock(),
        RandomIdGenerator(),
        partitions=None,
        schema=schema,
    )
    assert list(await second.store.partitions()) == [0, 1, 2]
    await second.close()


async def test_a_process_without_the_archive_writes_the_journal_too(
    shared_redis: RedisServer, backend: RedisPostgresBackend
) -> None:
    plain = await RedisBackend.open(shared_redis.url, clock=RealClock(), ids=RandomIdGenerator())

    await plain.store.commit(await plain.store.acquire(0, "one"), Commit(sequence=1))

    assert await backend.journal.length(0) == 1
    await plain.close()


async def test_a_gap_in_the_journal_is_a_broken_invariant(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await fill(backend, lease, 3)
    await backend.journal.trim(lease, upto=2)

    with pytest.raises(ArchiveGapError, match="ends with commit 0, Redis has only those from 3 on"):
        await backend.journal.read(lease, after=0, limit=10)


async def test_a_former_owner_can_not_read_the_journal(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await fill(backend, lease, 3)
    await backend.store.release(lease)
    after_release = await backend.journal.read(lease, after=0, limit=10)

    later = await backend.store.acquire(lease.partition, "two")
    await backend.journal.trim(later, upto=2)

    assert [entry.sequence for entry in after_release] == [1, 2, 3]
    with pytest.raises(FencedError):
        await backend.journal.read(lease, after=0, limit=10)


async def test_a_list_shows_the_redis_state_of_executions_that_are_not_final_in_the_archive(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await backend.mailbox.send([creation("x1"), creation("x2")])
    done = structs.replace(make_header("x1", state=ExecutionState.COMPLETED), finished_at=2.0)

    await backend.store.commit(lease, Commit(sequence=1, headers=[done]))

    everything = await backend.archive.list_headers(ExecutionFilter())
    pending = ExecutionFilter(states=(ExecutionState.PENDING,))
    assert [(header.execution_id, str(header.state)) for header in everything] == [
        ("x2", "PENDING"),
        ("x1", "COMPLETED"),
    ]
    assert [header.execution_id for header in await backend.archive.list_headers(pending)] == ["x2"]


async def test_an_execution_that_ended_in_the_archive_is_final_although_redis_was_rolled_back(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    started = HistoryRecord(aggregate_id="x1", entry=b"[1,1.0,[]]")
    ended = HistoryRecord(aggregate_id="x1", entry=b"[1,2.0,[]]")
    done = structs.replace(make_header("x1", state=ExecutionState.COMPLETED), finished_at=2.0)
    await backend.store.commit(
        lease, Commit(sequence=1, headers=[make_header("x1")], histories=[started])
    )
    former_life = [
        JournalEntry(sequence=1, headers=[make_header("x1")], histories=[started]),
        JournalEntry(sequence=2, headers=[done], histories=[ended]),
    ]
    await backend.ledger.append(0, former_life, after=0, epoch=lease.epoch)

    header = await backend.archive.get_header(ExecutionId("x1"))

    assert header == done
    assert list(await backend.archive.load(ExecutionId("x1"))) == [started.entry, ended.entry]


async def test_a_page_is_filled_although_some_states_in_redis_are_newer(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    ids = [f"x{number}" for number in range(9)]
    await backend.mailbox.send([creation(execution_id) for execution_id in ids])
    started = [make_header(execution_id) for execution_id in ids[2:8]]

    await backend.store.commit(lease, Commit(sequence=1, headers=started))

    pending = ExecutionFilter(states=(ExecutionState.PENDING,), limit=2)
    first = await backend.archive.list_headers(pending)
    second = await backend.archive.list_headers(structs.replace(pending, after=first.next))
    assert [header.execution_id for header in first] == ["x8", "x1"]
    assert [header.execution_id for header in second] == ["x0"]
