"""Heartbeat intervals that differ between processes, and the tasks of workers that died."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, StopEvents
from runnel.app.private_servers.redis import RedisServer
from runnel.app.wiring import build_worker
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.client.operations import get_worker_state
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.services.dead_workers import Reaper
from runnel.handlers import create_builtin_registry
from runnel.notify.event_bus import EventBus
from runnel.ports.workers import WorkerRecord
from runnel.settings.model import Settings
from runnel.testing.clock import FakeClock
from runnel.views.execution import HistoryEvent
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, build_registry
from tests.redis_server import flush_server
from tests.waiting import wait_for_value

SLOW = Settings(heartbeat_interval_s=30.0, heartbeat_timeout_s=135.0)
USUAL = Settings()
DEADLINE_S = 10.0


@pytest.fixture
async def backend(shared_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    flush_server(shared_redis)
    opened = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    yield opened
    await opened.close()


@pytest.fixture
async def slow(backend: RedisBackend) -> AsyncIterator[WorkerRecord]:
    """Returns a worker with one heartbeat, whose next one is due in half a minute."""
    role = build_worker(
        SLOW,
        backend,
        ClockAndIds(RealClock(), RandomIdGenerator()),
        EventBus(),
        handlers=create_builtin_registry(),
    )
    stops = StopEvents(asyncio.Event(), asyncio.Event())
    async with asyncio.TaskGroup() as group:
        group.create_task(role.run(stops))
        async with asyncio.timeout(DEADLINE_S):
            while not (records := await backend.tasks.workers()) or records[0].about is None:
                pass
        yield records[0]
        stops.drain.set()


async def test_a_worker_is_not_dead_before_three_of_its_heartbeat_intervals(
    backend: RedisBackend, slow: WorkerRecord
) -> None:
    clock = FakeClock()
    reaper = Reaper(
        backend.store, backend.tasks, clock, EventBus(), dead_after_s=USUAL.heartbeat_timeout_s
    )
    counts = [await reaper.tick()]
    for seconds in (USUAL.heartbeat_timeout_s, 89.0 - USUAL.heartbeat_timeout_s, 1.0):
        await clock.advance(seconds)
        counts.append(await reaper.tick())

    assert counts == [0, 0, 0, 1]


@pytest.mark.parametrize(("silent_s", "state"), [(89.0, "alive"), (91.0, "silent")])
async def test_a_worker_is_not_silent_before_three_of_its_heartbeat_intervals(
    slow: WorkerRecord, silent_s: float, state: str
) -> None:
    record = msgspec.structs.replace(slow, silent_s=silent_s)

    assert get_worker_state(record, USUAL) == state


# -- tasks that never began, of workers that died -------------------------------------------------

SLOTS = 12


async def lose_claimed_tasks(backend: RedisBackend, worker: str, count: int) -> None:
    """Claims tasks for a worker that begins none of them and dies."""
    claimed = 0
    async with asyncio.timeout(DEADLINE_S):
        while claimed < count:
            tasks = await backend.tasks.claim(
                worker, None, limit=count, wait_s=DEADLINE_S, starts_tasks=True
            )
            claimed += len(tasks)
    [record] = [item for item in await backend.tasks.workers() if item.worker == worker]
    assert await backend.store.lose_worker_tasks(record) == count


async def test_a_task_that_never_began_is_not_blamed_for_dead_workers(
    backend: RedisBackend,
) -> None:
    world = ClockAndIds(RealClock(), RandomIdGenerator())
    settings = Settings(crashes_max=0, worker_concurrency=SLOTS)
    engine = EmbeddedEngine(backend, build_registry(WorkHandler()), world, settings)
    nodes = [make_node(f"n{number}") for number in range(SLOTS)]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(engine.run(adopts=True, runs_tasks=False))
        execution_id = await engine.client.submit(make_workflow(*nodes))
        for worker in ("first", "second"):
            await lose_claimed_tasks(backend, worker, SLOTS)

        async def find_waiting() -> list[HistoryEvent] | None:
            history = await engine.client.history(execution_id)
            waits = [event for event in history if event.event == "NodeWaits"]
            return waits if len(waits) == SLOTS else None

        waits = await wait_for_value(find_waiting, every_s=0.02, deadline_s=DEADLINE_S)
        view = await engine.client.get(execution_id)
        history = await engine.client.history(execution_id)
        engine.stops.drain.set()
        await running

    assert {str(node.status) for node in view.nodes.values()} <= {"WAITING", "QUEUED"}
    assert {wait.fields["detail"] for wait in waits} == {"2 processes died while they held it"}
    lost = [event.fields for event in history if event.event == "TaskWasLost"]
    assert len(lost) == 2 * SLOTS
    assert not any(fields.get("was_alone") for fields in lost)
