"""Tasks that the commit which issues them pushes to a waiting worker."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.core.commands import TaskLost
from runnel.core.effects import TaskMessage
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import StoreError
from runnel.ports.store import Commit, Lease
from runnel.ports.workers import WorkerInfo
from runnel.testing.conformance.suite import make_completion, make_task, make_token
from tests.redis_relay import RedisRelay, open_relay
from tests.redis_server import flush_server, get_password
from tests.waiting import wait_for_value, wait_until

LONG_S = 60.0


class LateClock(RealClock):
    """The clock of a process that was stopped, as soon as `late_s` is set."""

    late_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late_s


async def opened(url: str, clock: RealClock | None = None) -> RedisBackend:
    return await RedisBackend.open(
        url, RedisOptions(partitions=1), clock=clock or RealClock(), ids=RandomIdGenerator()
    )


@pytest.fixture
async def backend(shared_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    flush_server(shared_redis)
    backend = await opened(shared_redis.url)
    yield backend
    await backend.close()


@pytest.fixture
async def lease(backend: RedisBackend) -> Lease:
    return await backend.store.acquire(0, "one")


async def until_waiting(backend: RedisBackend, *workers: str) -> None:
    """Waits until exactly these workers wait for tasks."""

    async def poll() -> bool | None:
        workers_waiting = await backend.pool.call("HKEYS", backend.keys.waiting)
        return {name.decode() for name in workers_waiting} == set(workers) or None

    await wait_for_value(poll, every_s=0.01, deadline_s=20)


async def issue(backend: RedisBackend, lease: Lease, *names: str, sequence: int = 1) -> None:
    tasks = [make_task(name) for name in names]
    await backend.store.commit(lease, Commit(sequence=sequence, tasks=tasks))


def waiting(
    group: asyncio.TaskGroup, backend: RedisBackend, worker: str, limit: int = 4
) -> asyncio.Task[list[str]]:
    async def claim() -> list[str]:
        tasks = await backend.tasks.claim(
            worker, None, limit=limit, wait_s=LONG_S, starts_tasks=True
        )
        return names_of(tasks)

    return group.create_task(claim())


def names_of(tasks: Iterable[TaskMessage]) -> list[str]:
    return [task.token.node_id for task in tasks]


async def queued(backend: RedisBackend) -> int:
    return sum(queue.depth for queue in await backend.tasks.queues())


async def test_a_task_is_pushed_to_a_waiting_worker_without_being_queued(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        await issue(backend, lease, "a")

    assert claimed.result() == ["a"]
    assert await backend.pool.call("EXISTS", backend.keys.arrivals + "default") == 0
    assert list(await backend.tasks.report("w", [make_completion("a")])) == [True]
    assert list(await backend.store.unknown_tasks(0, [make_token("a")])) == []


async def test_waiting_workers_share_new_tasks(backend: RedisBackend, lease: Lease) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = [waiting(group, backend, worker) for worker in ("v", "w")]
        await until_waiting(backend, "v", "w")
        await issue(backend, lease, "a", "b", "c", "d")

    assert sorted(len(claim_task.result()) for claim_task in claimed) == [2, 2]
    assert sorted(name for claim_task in claimed for name in claim_task.result()) == [
        "a",
        "b",
        "c",
        "d",
    ]


async def test_a_matching_worker_is_found_among_many_for_other_queues(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        waiting_workers = [part for number in range(99) for part in (f"v{number}", "4 1\nother\n")]
        await backend.pool.call("HSET", backend.keys.waiting, *waiting_workers)
        await issue(backend, lease, "a")

    assert claimed.result() == ["a"]
    assert await backend.pool.call("HLEN", backend.keys.waiting) == 99


async def test_many_waiting_workers_share_new_tasks(backend: RedisBackend, lease: Lease) -> None:
    workers = [f"w{number}" for number in range(40)]
    names = [f"n{number}" for number in range(40)]
    async with asyncio.TaskGroup() as group:
        claimed = [waiting(group, backend, worker) for worker in workers]
        await until_waiting(backend, *workers)
        await issue(backend, lease, *names)

    assert sorted(name for claim_task in claimed for name in claim_task.result()) == sorted(names)
    assert {len(claim_task.result()) for claim_task in claimed} == {1}


async def test_tasks_beyond_the_limit_of_the_workers_are_queued(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w", limit=2)
        await until_waiting(backend, "w")
        await issue(backend, lease, "a", "b", "c")

    assert claimed.result() == ["a", "b"]
    assert names_of(await backend.tasks.claim("w", None, limit=4, wait_s=0)) == ["c"]


async def test_a_worker_gets_one_push_per_claim(backend: RedisBackend, lease: Lease) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        await issue(backend, lease, "a")
        await issue(backend, lease, "b", sequence=2)

    assert claimed.result() == ["a"]
    assert await queued(backend) == 1


async def test_no_task_is_pushed_to_a_worker_without_a_connection(
    shared_redis: RedisServer, backend: RedisBackend, lease: Lease
) -> None:
    """As after a kill: the other workers need not wait until it is judged dead."""
    dead = await opened(shared_redis.url)
    async with asyncio.TaskGroup() as group:
        claiming = waiting(group, dead, "dead")
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "dead", "w")
        claiming.cancel()
        await dead.close()
        await until_heard(backend, "w")
        await issue(backend, lease, "a", "b", "c")

    assert claimed.result() == ["a", "b"]  # a share was reserved for the dead worker
    await until_waiting(backend)
    assert names_of(await backend.tasks.claim("w", None, limit=4, wait_s=0)) == ["c"]


async def until_heard(backend: RedisBackend, *workers: str) -> None:
    """Waits until exactly these workers are subscribed to their channels."""
    prefix = backend.keys.push_channel

    async def poll() -> bool | None:
        channels = await backend.pool.call("PUBSUB", "CHANNELS", "*")
        return {name.decode() for name in channels} == {prefix + name for name in workers} or None

    await wait_for_value(poll, every_s=0.01, deadline_s=20)


async def test_a_task_pushed_after_a_cancelled_claim_is_returned_by_the_next_claim(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        claimed.cancel()
    await issue(backend, lease, "a", "b", "c")

    async with asyncio.TaskGroup() as group:
        first = waiting(group, backend, "w", limit=2)
    async with asyncio.TaskGroup() as group:
        second = waiting(group, backend, "w", limit=2)

    assert (first.result(), second.result()) == (["a", "b"], ["c"])


async def test_a_pushed_task_that_was_lost_meanwhile_is_not_returned(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        claimed.cancel()
    await issue(backend, lease, "a", "b")
    for _ in range(2):
        await backend.tasks.beat("w", [make_token("b")])

    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")

    assert claimed.result() == ["b"]
    entries = await backend.store.read_inbox(lease, limit=9, wait_s=0)
    assert [entry.command.token for entry in entries if isinstance(entry.command, TaskLost)] == [
        make_token("a")
    ]


async def test_a_task_pushed_to_a_leaving_worker_is_lost_or_queued(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        claimed.cancel()
    await issue(backend, lease, "a")
    await backend.tasks.leave("w")
    await issue(backend, lease, "b", sequence=2)

    entries = await backend.store.read_inbox(lease, limit=9, wait_s=0)
    assert [type(entry.command).__name__ for entry in entries] == ["TaskLost"]
    assert names_of(await backend.tasks.claim("v", None, limit=4, wait_s=0)) == ["b"]


async def test_no_task_is_pushed_to_a_draining_worker(backend: RedisBackend, lease: Lease) -> None:
    """A draining worker may run its tasks for a long time: no new task should wait for it."""
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        claimed.cancel()
    await backend.tasks.beat("w", [], about=WorkerInfo(is_draining=True))
    await issue(backend, lease, "a")

    assert names_of(await backend.tasks.claim("v", None, limit=4, wait_s=0)) == ["a"]


async def test_a_waiting_worker_continues_after_its_connection_is_lost(
    shared_redis: RedisServer, backend: RedisBackend, lease: Lease
) -> None:
    async with open_relay(shared_redis) as way:
        far = await opened(url_over(way, shared_redis))
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(backend, "w")
            await far.pool.call("PING")  # so the reply to its claim has arrived too
            way.cut()
            await until_asked_twice(way)
            await until_waiting(backend, "w")
            await issue(backend, lease, "a")
        await far.close()

    assert claimed.result() == ["a"]


async def test_a_delayed_push_runs_only_if_the_task_was_not_lost_meanwhile(
    shared_redis: RedisServer, backend: RedisBackend, lease: Lease
) -> None:
    """As for a worker that was stopped while it waited: other workers have its tasks by then."""
    clock = LateClock()
    async with open_relay(shared_redis) as way:
        far = await opened(url_over(way, shared_redis), clock)
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(backend, "w")
            await far.pool.call("PING")  # so the reply to its claim has arrived too
            way.is_clear.clear()
            await issue(backend, lease, "a")
            await backend.tasks.leave("w")
            clock.late_s = LONG_S / 2
            way.is_clear.set()
            await until_waiting(backend, "w")
            await issue(backend, lease, "b", sequence=2)
        await far.close()

    assert claimed.result() == ["b"]


async def test_a_push_for_an_earlier_wait_ends_the_later_wait(
    shared_redis: RedisServer, backend: RedisBackend, lease: Lease
) -> None:
    """Otherwise it would get further pushes while it runs these tasks."""
    async with open_relay(shared_redis) as way:
        far = await opened(url_over(way, shared_redis))
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(backend, "w")
            await far.pool.call("PING")
            claimed.cancel()
        way.is_clear.clear()
        await issue(backend, lease, "a")
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(backend, "w")
            way.is_clear.set()
        await far.close()

    assert claimed.result() == ["a"]
    await until_waiting(backend)


async def test_a_worker_whose_calls_moved_to_another_server_gets_pushes_from_there(
    shared_redis: RedisServer, own_redis: RedisServer, backend: RedisBackend
) -> None:
    """A message on a replica reaches subscribers that its server does not count as receivers."""
    moved = await opened(own_redis.url)
    async with open_relay(shared_redis) as way:
        word = get_password(own_redis)
        await backend.pool.call("ACL", "SETUSER", "both", "on", f">{word}", "~*", "&*", "+@all")
        await moved.pool.call("ACL", "SETUSER", "both", "on", f">{word}", "~*", "&*", "+@all")
        far = await opened(f"redis://both:{word}@localhost:{way.port}/0")
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(backend, "w")
            claimed.cancel()
        way.server_port = own_redis.port
        await backend.pool.call("CLIENT", "KILL", "USER", "both", "TYPE", "normal")
        await until_called(far)
        async with asyncio.TaskGroup() as group:
            claimed = waiting(group, far, "w")
            await until_waiting(moved, "w")
            await until_heard(backend)
            lease = await moved.store.acquire(0, "one")
            await issue(moved, lease, "a")
        await far.close()
    await moved.close()
    await backend.pool.call("ACL", "DELUSER", "both")

    assert claimed.result() == ["a"]


async def until_called(backend: RedisBackend) -> None:
    """Waits until its calls are answered again, by either server."""

    async def poll() -> bytes | None:
        try:
            reply: bytes = await backend.pool.call("PING")
        except StoreError:
            return None
        return reply

    await wait_for_value(poll, every_s=0.01, deadline_s=20)


def url_over(way: RedisRelay, server: RedisServer) -> str:
    return f"redis://:{get_password(server)}@localhost:{way.port}/0"


async def until_asked_twice(way: RedisRelay) -> None:
    await wait_until(lambda: way.asked.count(b"SUBSCRIBE") == 2)


async def test_a_task_dropped_by_the_commit_that_issues_it_is_pushed_to_no_worker(
    backend: RedisBackend, lease: Lease
) -> None:
    async with asyncio.TaskGroup() as group:
        claimed = waiting(group, backend, "w")
        await until_waiting(backend, "w")
        both = Commit(sequence=1, tasks=[make_task("a"), make_task("b")], dropped=[make_token("a")])
        await backend.store.commit(lease, both)

    assert claimed.result() == ["b"]
    assert await queued(backend) == 0
