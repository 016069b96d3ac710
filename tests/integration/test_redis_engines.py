"""Several engines share one server: partitions, tasks and takeovers."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RandomIdGenerator, RealClock
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, flush_redis, open_engine, wait_for_end

DIAMOND = make_workflow(
    make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
)
LEASE_S = 0.5


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return flush_redis(request)


async def submit_many(engine: EmbeddedEngine, count: int) -> list[ExecutionId]:
    return list(await asyncio.gather(*[engine.client.submit(DIAMOND) for _ in range(count)]))


async def test_engines_share_the_tasks_of_one_store(url: str, tmp_path: Path) -> None:
    works = [WorkHandler(), WorkHandler(), WorkHandler()]
    gates = [work.gate("a") for work in works]
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                open_engine("redis", tmp_path, work, concurrency=4, redis_url=url)
            )
            for work in works
        ]
        ids = await submit_many(engines[-1], 60)
        for work in works:
            await work.entered["a"].wait()
        for gate in gates:
            gate.set()
        views = await asyncio.gather(
            *[wait_for_end(engines[-1], execution_id) for execution_id in ids]
        )

    assert {str(view.status) for view in views} == {"COMPLETED"}
    assert sum(len(work.calls) for work in works) == 4 * len(ids)
    assert all(work.calls for work in works)


async def test_another_engine_finishes_the_executions_of_one_that_stopped(
    url: str, tmp_path: Path
) -> None:
    first_work, second_work = WorkHandler(), WorkHandler()
    first_work.gate("b")
    async with open_engine(
        "redis", tmp_path, second_work, redis_url=url, lease_s=LEASE_S
    ) as second:
        async with open_engine("redis", tmp_path, first_work, redis_url=url) as first:
            ids = await submit_many(first, 20)
            await first_work.entered["b"].wait()
        views = await asyncio.gather(*[wait_for_end(second, execution_id) for execution_id in ids])

    assert {str(view.status) for view in views} == {"COMPLETED"}
    assert second_work.calls


async def test_an_engine_continues_after_a_restart_of_the_server(
    url: str, tmp_path: Path, shared_redis: RedisServer
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with open_engine("redis", tmp_path, work, redis_url=url, lease_s=LEASE_S) as engine:
        ids = await submit_many(engine, 5)
        await work.entered["b"].wait()
        await asyncio.to_thread(shared_redis.restart)
        gate.set()
        views = await asyncio.gather(*[wait_for_end(engine, execution_id) for execution_id in ids])

    assert {str(view.status) for view in views} == {"COMPLETED"}


async def test_nothing_is_left_on_the_server_when_all_has_ended(url: str, tmp_path: Path) -> None:
    async with open_engine("redis", tmp_path, WorkHandler(), redis_url=url) as engine:
        ids = await submit_many(engine, 30)
        await asyncio.gather(*[wait_for_end(engine, execution_id) for execution_id in ids])

    backend = await RedisBackend.open(url, clock=RealClock(), ids=RandomIdGenerator())
    keys = backend.keys
    of_partitions = [
        (command, f"{prefix}{number}")
        for command, prefix in (
            ("XLEN", keys.inbox),
            ("ZCARD", keys.timers),
            ("ZCARD", keys.running),
        )
        for number in await backend.store.partitions()
    ]
    of_tasks = [
        ("HLEN", keys.task_locations),
        ("HLEN", keys.workers),
        ("ZCARD", f"{keys.arrivals}default"),
    ]
    sizes = [await backend.pool.call(*command) for command in (*of_partitions, *of_tasks)]
    records = [await backend.store.observe(number) for number in await backend.store.partitions()]
    await backend.close()

    assert set(sizes) == {0}
    assert set(records) == {None}
