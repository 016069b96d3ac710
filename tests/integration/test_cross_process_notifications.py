"""A process that waits for an execution of another process is notified and does not poll.

The clock of the waiting process stands still, so polling would never happen.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.app.engine import Engine
from runnel.app.follower import RemoteFollower
from runnel.app.stores import StoreSession, build_store_session
from runnel.backends.redis.backend import RedisBackend
from runnel.core.events import ExecutionFinished
from runnel.core.states import ExecutionState
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.testing.clock import FakeClock, FakeIds
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, open_engine

CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))


@asynccontextmanager
async def open_observer(engine: Engine, redis_url: str | None) -> AsyncIterator[StoreSession]:
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
    received: list[CommittedEvents | StartedTask] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, work, redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
        asyncio.TaskGroup() as group,
    ):
        observer.event_bus.watch(received.append)
        remote = RemoteFollower(
            observer.client, observer.clock, observer.event_bus, observer.feed_broadcaster
        )
        group.create_task(remote.run())
        execution_id = await engine.client.submit(CHAIN)
        waiting = group.create_task(remote.wait_until_final(execution_id))
        await work.entered["a"].wait()

        for gate in gates:
            gate.set()
        await waiting
        commits = [item for item in received if isinstance(item, CommittedEvents)]
        history = await engine.client.history(execution_id)
        remote.stops.drain.set()

    names = [type(event).__name__ for commit in commits for event in commit.events]
    assert names == [entry.event for entry in history]
    assert isinstance(commits[-1].events[-1], ExecutionFinished)


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_finished_execution_is_published_completely_and_once(
    kind: str, tmp_path: Path, redis_url: str | None
) -> None:
    received: list[CommittedEvents | StartedTask] = []
    async with (
        asyncio.timeout(DEADLINE_S),
        open_engine(kind, tmp_path, WorkHandler(), redis_url=redis_url) as engine,
        open_observer(engine, redis_url) as observer,
        asyncio.TaskGroup() as group,
    ):
        execution_id = await engine.client.submit(CHAIN)
        await engine.client.wait_for_end(execution_id)
        observer.event_bus.watch(received.append)
        remote = RemoteFollower(
            observer.client, observer.clock, observer.event_bus, observer.feed_broadcaster
        )
        group.create_task(remote.run())

        await remote.wait_until_final(execution_id)

        published = [item for item in received if isinstance(item, CommittedEvents)]
        history = await engine.client.history(execution_id)
        remote.stops.drain.set()

    names = [type(event).__name__ for commit in published for event in commit.events]
    assert names == [entry.event for entry in history]
