"""Eviction of archived executions from Redis: complete trees, and nothing that is still needed."""

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec import structs

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import FencedError
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord, InboxPosition, Lease
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import make_header, make_message
from tests.redis_postgres import open_archived_backend

S = ExecutionState
NOTHING_READ = InboxPosition("0-0")


@pytest.fixture
async def backend(
    shared_redis: RedisServer, shared_postgres: PostgresServer
) -> AsyncIterator[RedisPostgresBackend]:
    opened = await open_archived_backend(shared_redis, shared_postgres, FakeClock(), FakeIds())
    yield opened
    await opened.close()


@pytest.fixture
async def lease(backend: RedisPostgresBackend) -> Lease:
    return await backend.store.restore(await backend.store.acquire(0, "one"))


def final(id_: str) -> ExecutionHeader:
    parent = id_.partition(".")[0] if "." in id_ else None
    return structs.replace(make_header(id_, state=S.COMPLETED, parent=parent), finished_at=2.0)


async def list_remaining(backend: RedisPostgresBackend, ids: Sequence[str]) -> list[str]:
    headers = [
        await backend.redis.archive.get_header(ExecutionId(execution_id)) for execution_id in ids
    ]
    return [header.execution_id for header in headers if header is not None]


async def test_final_roots_are_forgotten_up_to_a_commit(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    ids = ["x1", "x2", "x3"]
    for sequence, id_ in enumerate(ids, start=1):
        entry = HistoryRecord(aggregate_id=id_, entry=b"[]")
        commit = Commit(sequence=sequence, headers=[final(id_)], histories=[entry])
        await backend.store.commit(lease, commit)

    gone = await backend.journal.forget(lease, upto=2, inbox_position=NOTHING_READ)

    assert gone == 2
    assert await list_remaining(backend, ids) == ["x3"]
    assert [len(await backend.store.load(execution_id)) for execution_id in ids] == [0, 0, 1]


@pytest.mark.parametrize("children", [3, 1_200])
async def test_a_tree_is_forgotten_completely(
    backend: RedisPostgresBackend, lease: Lease, children: int
) -> None:
    below = [f"x1.n.{number}" for number in range(children)]
    await backend.blobs.put("x1.n.1/a", b"large")
    await backend.blobs.put("x10/a", b"of another")
    await backend.store.commit(
        lease,
        Commit(
            sequence=1, headers=[final(execution_id) for execution_id in ["x1", "x10", *below[1:]]]
        ),
    )
    await backend.store.commit(
        lease, Commit(sequence=2, headers=[make_header(below[0], parent="x1")])
    )

    counts = [await backend.journal.forget(lease, upto=9, inbox_position=NOTHING_READ)]
    kept = await list_remaining(backend, ["x1", "x10", *below])
    await backend.blobs.put("x10/a", b"of another")
    await backend.store.commit(lease, Commit(sequence=3, headers=[final(below[0])]))
    counts.append(await backend.journal.forget(lease, upto=2, inbox_position=NOTHING_READ))
    counts.append(await backend.journal.forget(lease, upto=3, inbox_position=NOTHING_READ))

    assert counts == [1, 0, children + 1]
    assert len(kept) == children + 1
    assert await list_remaining(backend, ["x1", *below]) == []
    assert await backend.redis.pool.call("ZRANGE", backend.redis.keys.blobs, 0, -1) == [b"x10/a"]


async def test_roots_that_stay_do_not_hide_later_roots_from_a_batch(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    stay = [f"a{number}" for number in range(250)]
    running = [make_header(f"{execution_id}.n.1", parent=execution_id) for execution_id in stay]
    await backend.store.commit(
        lease,
        Commit(sequence=1, headers=[*(final(execution_id) for execution_id in stay), *running]),
    )
    go = [f"b{number}" for number in range(450)]
    await backend.store.commit(
        lease, Commit(sequence=2, headers=[final(execution_id) for execution_id in go])
    )

    gone = await backend.journal.forget(lease, upto=2, inbox_position=NOTHING_READ)

    assert gone == len(go)
    assert len(await list_remaining(backend, stay)) == len(stay)


async def test_nothing_is_forgotten_before_the_owner_has_read_the_inbox(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await backend.store.commit(lease, Commit(sequence=1, headers=[final("x1")]))
    await backend.mailbox.send([make_message("late")])
    end = await backend.journal.read_inbox_end(0)

    early = await backend.journal.forget(lease, upto=1, inbox_position=end)
    entries = await backend.store.read_inbox(lease, limit=9, wait_s=0)
    await backend.store.commit(lease, Commit(sequence=2, consumed=entries[-1].position))

    assert early is None
    assert await backend.journal.forget(lease, upto=1, inbox_position=end) == 1


async def test_a_former_owner_can_not_forget_or_resend(
    backend: RedisPostgresBackend, lease: Lease
) -> None:
    await backend.store.commit(lease, Commit(sequence=1, headers=[final("x1")]))
    await backend.store.release(lease)
    await backend.store.acquire(0, "two")

    with pytest.raises(FencedError):
        await backend.journal.forget(lease, upto=1, inbox_position=NOTHING_READ)
    with pytest.raises(FencedError):
        await backend.journal.resend(lease, [make_message("again")])

    assert await list_remaining(backend, ["x1"]) == ["x1"]
