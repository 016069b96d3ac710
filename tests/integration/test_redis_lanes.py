"""The lanes of a queue on Redis, and tasks of earlier versions, which are in a stream."""

from collections.abc import AsyncIterator, Sequence

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.keys import encode
from runnel.backends.redis.options import RedisOptions
from runnel.core.commands import TaskFailed
from runnel.core.effects import TaskMessage
from runnel.core.retry import ErrorInfo
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.store import Commit, Lease
from runnel.testing.conformance.fairness import claim_one_by_one, make_placed_task
from runnel.testing.conformance.suite import make_task, make_token
from tests.redis_server import flush_server

OLD = ("old0", "old1", "old2")
ERROR = ErrorInfo("HandlerNotFoundError", "no handler")


@pytest.fixture
async def backend(shared_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    flush_server(shared_redis)
    backend = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    yield backend
    await backend.close()


@pytest.fixture
async def lease(backend: RedisBackend) -> Lease:
    return await backend.store.acquire(0, "one")


async def queue_in_stream(backend: RedisBackend, *names: str) -> None:
    """Queues tasks as Runnel did before there were lanes: in a stream per queue."""
    keys, call = backend.keys, backend.pool.call
    for task in map(make_task, names):
        token = encode(task.token)
        fields = ("t", token, "p", "0", "b", encode(task))
        entry = await call("XADD", f"{keys.tasks}{task.queue}", "*", *fields)
        await call("HSET", keys.task_locations, token, f"q{entry.decode()} {task.queue}")
        await call("SADD", keys.queues, task.queue)


async def issue(backend: RedisBackend, lease: Lease, tasks: Sequence[TaskMessage]) -> None:
    await backend.store.commit(lease, Commit(sequence=1, tasks=tasks))


async def list_lane_keys(backend: RedisBackend) -> list[bytes]:
    keys = backend.keys
    prefixes = (keys.lanes, keys.turns, keys.arrivals)
    names = [await backend.pool.call("KEYS", f"{prefix}*") for prefix in prefixes]
    return [name for found in names for name in found]


async def test_tasks_of_an_earlier_version_are_claimed_first(
    backend: RedisBackend, lease: Lease
) -> None:
    await queue_in_stream(backend, *OLD)
    await issue(backend, lease, [make_placed_task("new", priority=100)])
    (record,) = await backend.tasks.queues()

    assert record.depth == len(OLD) + 1
    assert await claim_one_by_one(backend.tasks, 4) == [*OLD, "new"]


async def test_a_claim_takes_tasks_of_both_versions(backend: RedisBackend, lease: Lease) -> None:
    await queue_in_stream(backend, "old0", "old1")
    await issue(backend, lease, [make_task(f"new{n}") for n in range(3)])

    claimed = await backend.tasks.claim("w", None, limit=4, wait_s=0)

    assert [task.token.node_id for task in claimed] == ["old0", "old1", "new0", "new1"]


async def test_a_task_of_an_earlier_version_can_be_dropped(
    backend: RedisBackend, lease: Lease
) -> None:
    await queue_in_stream(backend, "old0", "old1")

    await backend.store.commit(lease, Commit(sequence=1, dropped=[make_token("old0")]))

    assert await claim_one_by_one(backend.tasks, 2) == ["old1"]


async def test_a_task_of_an_earlier_version_can_be_rejected(
    backend: RedisBackend, lease: Lease
) -> None:
    await queue_in_stream(backend, "old")
    await issue(backend, lease, [make_task("new")])

    count = await backend.store.reject_tasks("default", ERROR, waiting_s=0, limit=10)

    entries = await backend.store.read_inbox(lease, limit=10, wait_s=0)
    assert count == 2
    assert [type(entry.command) for entry in entries] == [TaskFailed, TaskFailed]
    assert await claim_one_by_one(backend.tasks, 1) == []


async def test_rejected_and_dropped_tasks_leave_no_member_of_a_lane(
    backend: RedisBackend, lease: Lease
) -> None:
    tasks = [make_placed_task(f"t{n}", workflow=f"w{n % 3}", priority=n % 2) for n in range(12)]
    await issue(backend, lease, tasks)

    dropped = [task.token for task in tasks[:6]]
    await backend.store.commit(lease, Commit(sequence=2, dropped=dropped))
    await backend.store.reject_tasks("default", ERROR, waiting_s=0, limit=10)

    left = [name for name in await list_lane_keys(backend) if b":turns:" not in name]
    assert left == []


async def test_a_forgotten_queue_leaves_no_lanes(backend: RedisBackend, lease: Lease) -> None:
    await issue(backend, lease, [make_placed_task(f"t{n}", workflow=f"w{n}") for n in range(3)])
    await claim_one_by_one(backend.tasks, 3)

    (record,) = await backend.tasks.queues()
    is_forgotten = await backend.store.forget_queue(record)

    assert is_forgotten
    assert await list_lane_keys(backend) == []


async def test_names_with_any_character_have_lanes_of_their_own(
    backend: RedisBackend, lease: Lease
) -> None:
    """A queue `a:1` with the workflow `b` is not the queue `a` with the workflow `1:b`."""
    names = (("a:0 b", "c"), ("a", "b:0 c"), ("3:a", "b"), ("a", "0 b"))
    tasks = [
        make_placed_task(f"t{n}", workflow=workflow, queue=queue)
        for n, (queue, workflow) in enumerate(names)
    ]
    await issue(backend, lease, tasks)

    claimed = await backend.tasks.claim("w", ["a"], limit=9, wait_s=0)

    assert sorted(task.token.node_id for task in claimed) == ["t1", "t3"]
