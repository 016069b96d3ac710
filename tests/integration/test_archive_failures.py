"""PostgreSQL down, Redis wiped, Redis rolled back: nothing that was promised is lost."""

import asyncio
from collections import Counter

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.client.store_client import StoreClient
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import FencedError, PartitionUnavailableError, StoreError
from runnel.notify.waiter import Completion
from runnel.ports.store import Commit, HistoryRecord, Lease
from runnel.testing.conformance.suite import make_header
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import (
    ArchivedEngine,
    fetch_rows,
    make_schema_name,
    open_archived_backend,
    open_archived_engine,
)
from tests.redis_server import flush_server

CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))
DIAMOND = make_workflow(
    make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
)
LARGE = make_workflow(
    make_node("a", config={"text": "l" * 300_000}), make_node("b", "a"), make_node("c", "b")
)


async def check_once(running: ArchivedEngine, ids: list[ExecutionId]) -> None:
    """Checks by the audit log that every node settled once, and that the journal is empty."""
    await running.archive_all()
    rows = await fetch_rows(
        running.backend,
        "SELECT aggregate_id, convert_from(entry, 'UTF8') FROM audit_log",
    )
    settled = Counter(
        (id_, kind)
        for id_, entry in rows
        for kind in ("ExecutionCreated", "ExecutionFinished")
        for _ in range(entry.count(f'"type":"{kind}"'))
    )
    assert {settled[id_, "ExecutionFinished"] for id_ in ids} == {1}
    assert {settled[id_, "ExecutionCreated"] for id_ in ids} == {1}
    assert await fetch_rows(
        running.backend, "SELECT count(*) FROM commands WHERE applied_at IS NULL"
    ) == [(0,)]


async def test_executions_continue_without_postgresql_and_are_archived_later(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(shared_redis, own_postgres, work) as running:
        ids = await running.submit_all([CHAIN, DIAMOND] * 10)
        await work.entered["b"].wait()
        await asyncio.to_thread(own_postgres.kill)
        gate.set()

        assert set(await running.ends(ids)) == {"COMPLETED"}
        with pytest.raises(StoreError, match="PostgreSQL"):
            await running.client.submit(CHAIN)

        await asyncio.to_thread(own_postgres.start)
        later = await running.client.submit(CHAIN)
        assert await running.ends([later]) == ["COMPLETED"]
        await check_once(running, [*ids, later])


async def test_executions_do_not_wait_for_an_unresponsive_postgresql(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(
        shared_redis, own_postgres, work, archive_call_s=0.5
    ) as running:
        ids = await running.submit_all([CHAIN, DIAMOND] * 5)
        await work.entered["b"].wait()
        own_postgres.pause()
        gate.set()

        assert set(await running.ends(ids)) == {"COMPLETED"}
        with pytest.raises(StoreError, match="PostgreSQL: TimeoutError"):
            await running.client.submit(CHAIN)

        own_postgres.resume()
        await check_once(running, ids)


async def test_a_wiped_redis_is_restored_from_the_archive(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        past = await running.submit_all([CHAIN, LARGE] * 3)
        await running.ends(past)
        gate = work.gate("b")
        ids = await running.submit_all([CHAIN, DIAMOND, LARGE] * 10)
        held = await running.client.hold(CHAIN)
        await work.entered["b"].wait()
        await running.archive_all()

        await asyncio.to_thread(own_redis.wipe)
        gate.set()

        assert set(await running.ends(ids)) == {"COMPLETED"}
        assert str((await running.client.get(past[0])).status) == "COMPLETED"
        await running.client.trigger(held)
        assert await running.ends([held]) == ["COMPLETED"]
        await check_once(running, [*past, *ids, held])
    assert work.calls.count("c") >= len(past) + len(ids) + 1


async def test_a_submitted_execution_survives_an_immediate_wipe(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_archived_engine(
        own_redis, shared_postgres, WorkHandler(), flush_s=1
    ) as running:
        ids = await running.submit_all([CHAIN] * 10)

        await asyncio.to_thread(own_redis.wipe)

        assert set(await running.ends(ids)) == {"COMPLETED"}
        await check_once(running, ids)


async def test_a_large_input_is_back_in_redis_before_its_command_is_sent_again(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """Workers have no PostgreSQL: all values that they need must be in Redis."""
    clock, ids = RealClock(), RandomIdGenerator()
    backend = await open_archived_backend(own_redis, shared_postgres, clock, ids)
    client = StoreClient(backend, clock, ids, get_completion=lambda _id: Completion())
    await client.submit(CHAIN, {"text": "l" * 300_000})

    await asyncio.to_thread(own_redis.wipe)
    lease = await backend.store.restore(await backend.store.acquire(0, "one"))

    [entry] = await backend.store.read_inbox(lease, limit=10, wait_s=0)
    assert isinstance(entry.command, CreateExecution)
    assert len(await backend.hot_blobs.get(entry.command.input.blob or "")) > 300_000
    await backend.close()


async def test_a_former_incarnation_does_not_trim_the_journal(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(
        own_redis, shared_postgres, RealClock(), RandomIdGenerator()
    )
    lease = await backend.store.restore(await backend.store.acquire(0, "one"))
    await backend.store.commit(
        lease, Commit(sequence=1, histories=[HistoryRecord(aggregate_id="x", entry=b"e")])
    )
    await asyncio.to_thread(own_redis.restart)

    with pytest.raises(FencedError):
        await backend.journal.trim(lease, upto=1)

    assert await backend.journal.length(0) == 1
    await backend.close()


@pytest.mark.parametrize("is_queued", [True, False])
async def test_a_rolled_back_redis_is_restored_to_the_state_of_the_archive(
    own_redis: RedisServer, shared_postgres: PostgresServer, is_queued: bool
) -> None:
    """A worker holds the tasks of the restored state, or there are more than it can take."""
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        ids = await running.submit_all([CHAIN] * (40 if is_queued else 10))
        await work.entered["b"].wait()
        copy = await asyncio.to_thread(own_redis.save_aof)
        gate.set()
        await running.ends(ids)
        late = await running.submit_all([DIAMOND] * 5)
        await running.ends(late)
        await running.archive_all()

        await asyncio.to_thread(own_redis.restore_aof, copy)
        new = await running.submit_all([DIAMOND] * 5)

        assert set(await running.ends([*ids, *late, *new])) == {"COMPLETED"}
        await check_once(running, [*ids, *late, *new])
        redis = running.backend.redis
        assert await redis.pool.call("HLEN", redis.keys.task_locations) == 0
        assert await redis.pool.call("ZCARD", f"{redis.keys.arrivals}default") == 0


async def test_a_former_archiver_of_a_rolled_back_redis_writes_nothing(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    former, later = [
        await open_archived_backend(
            own_redis, shared_postgres, RealClock(), RandomIdGenerator(), schema=schema
        )
        for _ in range(2)
    ]
    copy = await asyncio.to_thread(own_redis.save_aof)
    lease = await former.store.restore(await former.store.acquire(0, "former"))
    await former.store.commit(
        lease, Commit(sequence=1, histories=[HistoryRecord(aggregate_id="x", entry=b"old")])
    )
    entries = await former.journal.read(lease, after=0, limit=10)
    await asyncio.to_thread(own_redis.restore_aof, copy)

    current = await later.store.restore(await later.store.acquire(0, "later"))
    await later.store.commit(
        current, Commit(sequence=1, histories=[HistoryRecord(aggregate_id="x", entry=b"new")])
    )
    with pytest.raises(FencedError):
        await former.ledger.append(0, entries, after=0, epoch=lease.epoch)
    with pytest.raises(FencedError):
        await former.journal.read(lease, after=0, limit=10)
    fresh = await later.journal.read(current, after=0, limit=10)
    await later.ledger.append(0, fresh, after=0, epoch=current.epoch)

    assert current.epoch > lease.epoch
    assert await fetch_rows(later, "SELECT entry FROM audit_log") == [(b"new",)]
    await former.close()
    await later.close()


async def test_the_same_commit_is_not_archived_twice(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(
        shared_redis, shared_postgres, RealClock(), RandomIdGenerator()
    )
    lease = await backend.store.restore(await backend.store.acquire(0, "one"))
    await backend.store.commit(
        lease, Commit(sequence=1, histories=[HistoryRecord(aggregate_id="x", entry=b"e")])
    )
    entries = await backend.journal.read(lease, after=0, limit=10)
    await backend.ledger.append(0, entries, after=0, epoch=lease.epoch)

    with pytest.raises(FencedError):
        await backend.ledger.append(0, entries, after=0, epoch=lease.epoch)

    assert await fetch_rows(backend, "SELECT entry FROM audit_log") == [(b"e",)]
    await backend.close()


async def test_only_a_restarted_redis_needs_its_archive_for_a_lease(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    backend = await open_archived_backend(own_redis, own_postgres, RealClock(), RandomIdGenerator())
    lease = await backend.store.restore(await backend.store.acquire(0, "one"))
    await backend.store.release(lease)
    await asyncio.to_thread(own_postgres.kill)

    lease = await backend.store.restore(await backend.store.acquire(0, "two"))
    await backend.store.release(lease)
    await asyncio.to_thread(own_redis.restart)
    with pytest.raises(PartitionUnavailableError, match="the archive can't be read"):
        await backend.store.acquire(0, "three")

    assert lease.epoch == 2
    await backend.close()


async def test_a_recorded_command_that_was_never_sent_is_sent_by_the_owner(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """The caller died between the writes to PostgreSQL and to Redis."""
    async with open_archived_engine(
        shared_redis, shared_postgres, WorkHandler(), resend_s=0.1
    ) as running:
        known = await running.client.submit(CHAIN)
        header = await running.client.wait_for_end(known)
        id_ = ExecutionId("x1")
        command = CreateExecution(
            execution_id=id_,
            workflow=header.workflow,
            definition=DefinitionHash(header.definition),
            version=1,
            created_at=1.0,
        )
        partition = await running.backend.store.route(id_)

        await PostgresLedger(running.backend.database).record([(partition, command)])

        assert await running.ends([id_]) == ["COMPLETED"]


async def test_an_archived_final_execution_leaves_redis_and_can_still_be_read(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    child = make_workflow(make_node("x", config={"text": "l" * 300_000}))
    parent = make_workflow(
        make_node("a"), make_node("w", "a", handler="workflow", child=child), make_node("b", "w")
    )
    async with open_archived_engine(
        shared_redis, shared_postgres, WorkHandler(), keep_s=0.1
    ) as running:
        ids = await running.submit_all([LARGE, parent])
        await running.ends(ids)
        keys = running.backend.redis.keys
        remaining = 1

        async def count() -> None:
            nonlocal remaining
            sizes = [
                await running.backend.redis.pool.call(*command)
                for command in (
                    ("HLEN", keys.headers),
                    ("ZCARD", keys.ids_by_created_at),
                    ("ZCARD", keys.ids),
                    ("ZCARD", keys.blobs),
                )
            ]
            remaining = sum(sizes)

        async with asyncio.timeout(10):
            while remaining:
                await count()
        views = [await running.client.get(execution_id) for execution_id in ids]

        assert await running.backend.redis.pool.call("KEYS", keys.history + "*") == []
        assert await running.backend.redis.pool.call("KEYS", keys.blob + "*") == []
        assert {str(view.status) for view in views} == {"COMPLETED"}
        for execution_id, node in zip(ids, ("a", "w"), strict=False):
            output = await running.client.values.output(execution_id, node)
            assert output == {"text": "l" * 300_000}
        assert len(await running.client.history(ids[0])) > 5


async def test_an_engine_starts_without_postgresql_if_redis_has_not_restarted(
    shared_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    schema = make_schema_name()
    flush_server(shared_redis)
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(shared_redis, own_postgres, work, schema=schema) as running:
        ids = await running.submit_all([CHAIN, DIAMOND])
        await work.entered["b"].wait()
    await asyncio.to_thread(own_postgres.kill)
    gate.set()

    async with open_archived_engine(shared_redis, own_postgres, work, schema=schema) as running:
        assert set(await running.ends(ids)) == {"COMPLETED"}
        await asyncio.to_thread(own_postgres.start)
        await check_once(running, ids)


async def test_concurrency_keys_are_held_again_after_a_wipe(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("k")
    keyed = make_workflow(make_node("k", concurrency_key="one\0key", concurrency_limit=2))
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        ids = await running.submit_all([keyed] * 10)
        await work.entered["k"].wait()
        await running.archive_all()

        await asyncio.to_thread(own_redis.wipe)
        gate.set()

        assert set(await running.ends(ids)) == {"COMPLETED"}
        await check_once(running, ids)
        assert await fetch_rows(running.backend, "SELECT * FROM limit_log") == []
    assert work.running_most <= 4


async def test_unarchived_commits_from_before_a_wipe_are_discarded(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """An old copy replaces a Redis that has continued from the archive."""
    backend = await open_archived_backend(
        own_redis, shared_postgres, RealClock(), RandomIdGenerator()
    )

    async def own() -> Lease:
        return await backend.store.restore(await backend.store.acquire(0, "one"))

    def commit_of(sequence: int, id_: str) -> Commit:
        entry = HistoryRecord(aggregate_id=id_, entry=f"[1,1.0,[]] of {sequence}".encode())
        return Commit(sequence=sequence, headers=[make_header(id_)], histories=[entry])

    lease = await own()
    await backend.store.commit(lease, commit_of(1, "old"))
    await backend.store.commit(lease, commit_of(2, "both"))
    await backend.store.release(lease)
    copy = await asyncio.to_thread(own_redis.save_aof)
    await asyncio.to_thread(own_redis.wipe)
    lease = await own()
    await backend.store.commit(lease, commit_of(1, "both"))
    await backend.store.commit(lease, commit_of(2, "new"))
    entries = await backend.journal.read(lease, after=0, limit=10)
    await backend.ledger.append(0, entries, after=0, epoch=lease.epoch)
    await asyncio.to_thread(own_redis.restore_aof, copy)

    lease = await own()
    await backend.store.commit(lease, commit_of(3, "new"))

    assert lease.sequence == 2
    assert list(await backend.store.running(0)) == ["both", "new"]
    assert [
        len(await backend.store.load(execution_id)) for execution_id in ("old", "both", "new")
    ] == [0, 1, 2]
    assert await backend.redis.archive.get_header(ExecutionId("old")) is None
    assert [entry.sequence for entry in await backend.journal.read(lease, after=2, limit=9)] == [3]
    await backend.close()
