"""A process that waits for an execution of another process is notified and does not poll.

The clock of the waiting process stands still, so polling would never happen.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.stores import StoreSession, build_store_session
from runnel.backends.redis.backend import RedisBackend
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.testing.clock import FakeClock, FakeIds
from runnel.views.execution import HistoryEvent
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, open_engine

CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))


@asynccontextmanager
async def open_observer(
    engine: EmbeddedEngine, redis_url: str | None
) -> AsyncIterator[StoreSession]:
    """Opens the store of the engine as another process does."""
    clock = FakeClock()
    if redis_url is None:
        yield build_store_session(engine.backend, clock, FakeIds("observer"))
        return
    backend = await RedisBackend.open(redis_url, clock=clock, ids=FakeIds("observer"))
    try:
        yield build_store_session(backend, clock, FakeIds("observer"))
    finally:
        await backend.close()


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_waiter_in_another_process_is_notified_of_the_end(
    kind: str, tmp_path: Path, redis_url: str | None
) -> None:
    work = WorkHandler()
    gate = work.gate("b")
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, work, redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
        asyncio.TaskGroup() as group,
    ):
        execution_id = await engine.client.submit(CHAIN)
        waits = [group.create_task(observer.client.wait_for_end(execution_id)) for _ in range(5)]
        await work.entered["b"].wait()

        gate.set()

        for waiting in waits:
            assert (await waiting).state is ExecutionState.COMPLETED


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_process_is_notified_of_the_end_of_its_own_submission(
    kind: str, tmp_path: Path, redis_url: str | None
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
    ):
        for _ in range(5):
            execution_id = await observer.client.submit(CHAIN)

            header = await observer.client.wait_for_end(execution_id)

            assert header.state is ExecutionState.COMPLETED


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_follower_receives_every_event_before_the_end(
    kind: str, tmp_path: Path, redis_url: str | None
) -> None:
    work = WorkHandler()
    gates = [work.gate(name) for name in "abc"]
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, work, redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
        asyncio.TaskGroup() as group,
    ):
        execution_id = await engine.client.submit(CHAIN)
        following = group.create_task(collect(observer, execution_id))
        await work.entered["a"].wait()
        for gate in gates:
            gate.set()
        events = await following
        history = await engine.client.history(execution_id)

    assert events == history
    assert events[-1].event == ExecutionFinished.__name__


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_follower_of_a_final_execution_receives_its_history_once(
    kind: str, tmp_path: Path, redis_url: str | None
) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
    ):
        execution_id = await engine.client.submit(CHAIN)
        await engine.client.wait_for_end(execution_id)
        history = await engine.client.history(execution_id)

        assert await collect(observer, execution_id) == history
        assert await collect(observer, execution_id, after=3) == history[3:]
        assert await collect(observer, execution_id, after=len(history)) == []


async def collect(
    observer: StoreSession, execution_id: ExecutionId, *, after: int = 0
) -> list[HistoryEvent]:
    return [event async for event in observer.client.follow(execution_id, after=after)]
