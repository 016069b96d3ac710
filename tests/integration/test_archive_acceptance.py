"""Workers claim from a restarted Redis only after its owners have compared it with the archive."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.acceptance import OTHER_PARTITIONS_WAIT_S
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.ports.store import Commit, Store
from runnel.testing.conformance.suite import LeaseOwner, make_task, make_token
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler
from tests.redis_postgres import (
    ArchivedEngine,
    open_archived_backend,
    open_archived_engine,
)
from tests.waiting import wait_for_value

CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))
# More than the slots of the worker, so that tasks are queued.
EXECUTIONS = 40
HEARTBEATS = 12


async def wait_for_heartbeats(running: ArchivedEngine) -> None:
    """Waits until the worker and the orchestrator have sent heartbeats to the current server."""
    redis = running.backend.redis

    async def count() -> int:
        return int(await redis.pool.call("GET", redis.keys.heartbeat_counter) or 0)

    first = await count()

    async def has_passed() -> bool | None:
        return await count() >= first + HEARTBEATS or None

    await wait_for_value(has_passed, every_s=0.02, deadline_s=DEADLINE_S)


async def test_a_rolled_back_redis_runs_nothing_while_postgresql_is_down(
    own_redis: RedisServer, own_postgres: PostgresServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with open_archived_engine(own_redis, own_postgres, work) as running:
        ids = await running.submit_all([CHAIN] * EXECUTIONS)
        await work.entered["b"].wait()
        older = await asyncio.to_thread(own_redis.save_aof)
        gate.set()
        assert set(await running.ends(ids)) == {"COMPLETED"}
        await running.archive_all()
        finished = Counter(work.calls)

        await asyncio.to_thread(own_postgres.kill)
        await asyncio.to_thread(own_redis.restore_aof, older)
        await wait_for_heartbeats(running)

        assert Counter(work.calls) == finished

        await asyncio.to_thread(own_postgres.start)
        later = await running.submit_all([CHAIN] * 5)
        assert set(await running.ends([*ids, *later])) == {"COMPLETED"}
        assert Counter(work.calls) == finished + Counter({"a": 5, "b": 5, "c": 5})


class ShiftedClock(RealClock):
    shift_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift_s


async def own(store: Store, partition: int) -> LeaseOwner:
    lease = await store.acquire(partition, "one", expected=await store.observe(partition))
    return LeaseOwner(store, await store.restore(lease))


async def claim(backend: RedisBackend, *, wait_s: float = 0.0) -> list[str]:
    tasks = await backend.tasks.claim("w", None, limit=10, wait_s=wait_s, starts_tasks=True)
    return [task.token.node_id for task in tasks]


@asynccontextmanager
async def open_with_queued_tasks(
    redis: RedisServer, postgres: PostgresServer, clock: Clock, *, partitions: int = 1
) -> AsyncIterator[RedisBackend]:
    """Opens a backend with a queued task `t<partition>` in each partition."""
    backend = await open_archived_backend(
        redis, postgres, clock, RandomIdGenerator(), partitions=partitions
    )
    for partition in range(partitions):
        owner = await own(backend.store, partition)
        await owner.commit(Commit(sequence=0, tasks=[make_task(f"t{partition}")]))
    try:
        yield backend.redis
    finally:
        await backend.close()


async def test_a_restarted_redis_is_claimed_from_after_its_owner_has_accepted_it(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_with_queued_tasks(own_redis, shared_postgres, RealClock()) as backend:
        await asyncio.to_thread(own_redis.restart)

        assert await claim(backend) == []
        waiting = asyncio.create_task(claim(backend, wait_s=DEADLINE_S))
        await own(backend.store, 0)

        assert await waiting == ["t0"]


async def test_a_restart_during_a_wait_ends_in_a_claim_from_the_accepted_redis(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_with_queued_tasks(own_redis, shared_postgres, RealClock()) as backend:
        assert await claim(backend) == ["t0"]
        waiting = asyncio.create_task(claim_with_retries(backend))
        await wait_for_value(lambda: is_registered(backend), every_s=0.01, deadline_s=DEADLINE_S)
        await asyncio.to_thread(own_redis.restart)
        owner = await own(backend.store, 0)
        await owner.commit(Commit(sequence=0, tasks=[make_task("next")]))

        assert await waiting == ["next"]


async def test_a_partition_that_is_not_accepted_does_not_block_the_others_for_ever(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    clock = ShiftedClock()
    async with open_with_queued_tasks(own_redis, shared_postgres, clock, partitions=2) as backend:
        await asyncio.to_thread(own_redis.restart)
        await own(backend.store, 1)
        assert await claim(backend) == []

        clock.shift_s = OTHER_PARTITIONS_WAIT_S

        assert await claim(backend) == ["t1"]
        lost = await backend.store.unknown_tasks(0, [make_token("t0"), make_token("t1")])
        assert list(lost) == [make_token("t0")]
        owner = await own(backend.store, 0)
        await owner.commit(Commit(sequence=0, tasks=[make_task("t0", attempt=2)]))
        assert await claim(backend) == ["t0"]


async def test_a_claim_that_removed_tasks_claims_again_before_it_waits(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    clock = ShiftedClock()
    async with open_with_queued_tasks(own_redis, shared_postgres, clock, partitions=2) as backend:
        await asyncio.to_thread(own_redis.restart)
        await own(backend.store, 1)
        assert await claim(backend) == []
        clock.shift_s = OTHER_PARTITIONS_WAIT_S

        [task] = await backend.tasks.claim("w", None, limit=1, wait_s=DEADLINE_S, starts_tasks=True)

        assert task.token == make_token("t1")


async def test_a_worker_without_postgresql_waits_for_the_owner_too(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_with_queued_tasks(own_redis, shared_postgres, RealClock()) as backend:
        await asyncio.to_thread(own_redis.restart)
        worker = await RedisBackend.open(own_redis.url, clock=RealClock(), ids=RandomIdGenerator())

        assert await claim(worker) == []
        await own(backend.store, 0)
        assert await claim(worker) == ["t0"]
        await worker.close()


async def test_a_redis_without_an_archive_is_claimed_from_at_once_after_a_restart(
    own_redis: RedisServer,
) -> None:
    backend = await RedisBackend.open(own_redis.url, clock=RealClock(), ids=RandomIdGenerator())
    owner = await own(backend.store, 0)
    await owner.commit(Commit(sequence=0, tasks=[make_task("t")]))
    await asyncio.to_thread(own_redis.restart)

    assert await claim(backend) == ["t"]
    await backend.close()


async def test_an_accepted_redis_is_claimed_from_with_one_call(
    own_redis: RedisServer, shared_postgres: PostgresServer
) -> None:
    async with open_with_queued_tasks(own_redis, shared_postgres, RealClock()) as backend:
        assert await claim(backend) == ["t0"]
        first = await count_script_calls(backend.pool)

        for _ in range(5):
            assert await claim(backend) == []

        assert await count_script_calls(backend.pool) - first == 5


async def count_script_calls(pool: RedisConnectionPool) -> int:
    stats = (await pool.call("INFO", "commandstats")).decode()
    return int(stats.partition("cmdstat_evalsha:calls=")[2].split(",", 1)[0])


async def is_registered(backend: RedisBackend) -> bool | None:
    return bool(await backend.pool.call("HEXISTS", backend.keys.waiting, "w")) or None


async def claim_with_retries(backend: RedisBackend) -> list[str]:
    """Claims until there is a task, as a worker does: while the server is down, a claim fails."""

    async def read() -> list[str] | None:
        with suppress(StoreError):
            return await claim(backend, wait_s=DEADLINE_S) or None
        return None

    return await wait_for_value(read, every_s=0.01, deadline_s=DEADLINE_S)
