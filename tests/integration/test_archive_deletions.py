"""Executions that retention deleted do not return with a Redis that was rolled back."""

import asyncio

from msgspec import structs

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.store import Commit, HistoryRecord, Lease
from runnel.testing.conformance.suite import make_header
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler
from tests.redis_postgres import fetch_rows, open_archived_backend, open_archived_engine

CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))
TREE = make_workflow(make_node("w", handler="workflow", child=CHAIN), make_node("d", "w"))
DONE = ExecutionState.COMPLETED


def creation(id_: str) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(id_),
        workflow="w",
        definition=DefinitionHash("d"),
        version=1,
        created_at=1.0,
    )


async def own(backend: RedisPostgresBackend) -> Lease:
    return await backend.store.restore(await backend.store.acquire(0, "one"))


async def archive(backend: RedisPostgresBackend, lease: Lease, after: int) -> None:
    entries = await backend.journal.read(lease, after=after, limit=10)
    await backend.ledger.append(0, entries, after=after, epoch=lease.epoch)


async def test_a_deleted_execution_does_not_run_again_after_a_rollback_of_redis(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(own_redis, shared_postgres, work) as running:
        ids = await running.submit_all([CHAIN, TREE] * 5)
        await work.entered["b"].wait()
        await running.archive_all()
        copy = await asyncio.to_thread(own_redis.save_aof)
        gate.set()
        await running.ends(ids)
        await running.archive_all()
        retention = running.backend.retention
        assert await retention.delete_finished(DONE, before=1e10, limit=100) == len(ids)
        kept = await running.submit_all([CHAIN] * 10)
        await running.ends(kept)
        await running.archive_all()
        calls = len(work.calls)

        await asyncio.to_thread(own_redis.restore_aof, copy)
        new = await running.submit_all([CHAIN] * 10)
        assert set(await running.ends([*kept, *new])) == {"COMPLETED"}
        await running.archive_all()

        assert len(work.calls) == calls + 3 * len(new)
        assert [await running.backend.archive.get_header(execution_id) for execution_id in ids] == [
            None
        ] * len(ids)
        redis = running.backend.redis
        assert await redis.pool.call("HLEN", redis.keys.task_locations) == 0
        rows = await fetch_rows(running.backend, "SELECT DISTINCT aggregate_id FROM audit_log")
        assert {id_ for (id_,) in rows} == {*kept, *new}


async def test_a_deleted_execution_is_not_created_again_after_a_rollback_of_redis(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """An accepted execution that has not started is in the same inbox, and stays."""
    backend = await open_archived_backend(
        own_redis, shared_postgres, RealClock(), RandomIdGenerator()
    )
    await backend.mailbox.send([creation("old"), creation("waiting")])
    copy = await asyncio.to_thread(own_redis.save_aof)
    lease = await own(backend)
    ended = HistoryRecord(aggregate_id="old", entry=b"[1,1.0,[]]")
    final = structs.replace(make_header("old", state=DONE), finished_at=2.0)
    await backend.store.commit(lease, Commit(sequence=1, headers=[final], histories=[ended]))
    await archive(backend, lease, after=0)
    assert await backend.retention.delete_finished(DONE, before=1e10, limit=10) == 1

    await asyncio.to_thread(own_redis.restore_aof, copy)
    lease = await own(backend)

    entries = await backend.store.read_inbox(lease, limit=10, wait_s=0)
    assert [entry.command and entry.command.aggregate_id for entry in entries] == ["waiting"]
    assert await backend.archive.get_header(ExecutionId("old")) is None
    assert await backend.archive.get_header(ExecutionId("waiting")) is not None
    await backend.close()


async def test_common_commits_of_two_incarnations_that_were_not_archived_leave_no_gap(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    """A copy is restored that lost its last commits in a power failure, before any was archived."""
    backend = await open_archived_backend(
        own_redis, shared_postgres, RealClock(), RandomIdGenerator()
    )

    def commit_of(sequence: int) -> Commit:
        entry = HistoryRecord(aggregate_id="x", entry=f"[1,{sequence}.0,[]]".encode())
        return Commit(sequence=sequence, headers=[make_header("x")], histories=[entry])

    lease = await own(backend)
    for sequence in (1, 2):
        await backend.store.commit(lease, commit_of(sequence))
    await archive(backend, lease, after=0)
    await backend.store.commit(lease, commit_of(3))
    await backend.store.release(lease)
    before = await asyncio.to_thread(own_redis.save_aof)
    lease = await backend.store.acquire(0, "one")
    await backend.store.commit(lease, commit_of(4))
    await backend.store.release(lease)
    after = await asyncio.to_thread(own_redis.save_aof)
    await asyncio.to_thread(own_redis.restore_aof, before)
    lease = await own(backend)
    await backend.store.release(lease)
    await asyncio.to_thread(own_redis.restore_aof, after)

    lease = await own(backend)
    await backend.store.commit(lease, commit_of(lease.sequence + 1))
    await archive(backend, lease, after=2)

    history = list(await backend.store.load("x"))
    assert history[:2] == [b"[1,1.0,[]]", b"[1,2.0,[]]"]
    archived = await fetch_rows(backend, "SELECT sequence, entry FROM audit_log ORDER BY sequence")
    assert [entry for _, entry in archived] == history
    assert [sequence for sequence, _ in archived] == list(range(1, len(history) + 1))
    await backend.close()
