"""Processes may have different settings for the heartbeat interval of workers."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from runnel.app.engine import ClockAndIds, StopEvents
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
from tests.redis_server import flush_server

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
    for seconds in (USUAL.heartbeat_timeout_s, 80.0, 1.0):
        await clock.advance(seconds)
        counts.append(await reaper.tick())

    assert counts == [0, 0, 0, 1]


@pytest.mark.parametrize(("silent_s", "state"), [(89.0, "alive"), (91.0, "silent")])
async def test_a_worker_is_not_silent_before_three_of_its_heartbeat_intervals(
    slow: WorkerRecord, silent_s: float, state: str
) -> None:
    record = msgspec.structs.replace(slow, silent_s=silent_s)

    assert get_worker_state(record, USUAL) == state
