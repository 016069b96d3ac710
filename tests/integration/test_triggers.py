"""Triggers on real stores: two processes that fire concurrently start each execution once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine
from runnel.app.wiring import build_scheduler
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.client.definitions import DefinitionCache, WorkflowLibrary
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.notify.event_bus import EventBus
from runnel.notify.waiter import Completion
from runnel.ports import Backend
from runnel.ports.archive import ExecutionFilter
from runnel.ports.clock import NoSecrets
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.webhook import WebhookStore
from runnel.triggers.webhook_delivery import Delivery
from runnel.triggers.webhook_receiver import WebhookReceiver
from runnel.views.trigger import Overlap, Schedule, Webhook, WebhookKind
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, flush_redis, wait_for_end
from tests.integration.test_scenarios import engine, work
from tests.redis_postgres import make_schema_name, open_archived_backend
from tests.waiting import wait_until

__all__ = ["engine", "work"]

WORLD = ClockAndIds(RealClock(), RandomIdGenerator())
FLOW = msgspec.structs.replace(
    make_workflow(make_node("a", config={"at": "{{ input.at }}"})), name="flow"
)
SCHEDULES = 3
TICKS = 20
AT = {"at": "{{ tick.timestamp | int }}"}

Open = Callable[[], Awaitable[Backend]]


@pytest.fixture(params=["sqlite", "redis", "archived"])
async def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Yields a function that opens the store as another process on each call."""
    opened: list[Backend] = []
    schema = make_schema_name()
    url = "" if request.param == "sqlite" else flush_redis(request)

    async def open_() -> Backend:
        backend: Backend
        if request.param == "sqlite":
            backend = await SqliteBackend.open(tmp_path, clock=WORLD.clock, ids=WORLD.ids)
        elif request.param == "redis":
            backend = await RedisBackend.open(url, clock=WORLD.clock, ids=WORLD.ids)
        else:
            backend = await open_archived_backend(
                request.getfixturevalue("shared_redis"),
                request.getfixturevalue("shared_postgres"),
                WORLD.clock,
                WORLD.ids,
                schema=schema,
            )
        opened.append(backend)
        await backend.claim_home_partition(f"process {len(opened)}")
        return backend

    yield open_
    for opened_backend in opened:
        await opened_backend.close()


async def test_concurrent_schedulers_fire_each_tick_once(
    open_backend: Open,
) -> None:
    first, second = await open_backend(), await open_backend()
    schedulers = [build_scheduler(backend, WORLD, EventBus()) for backend in (first, second)]
    start = float(int(WORLD.clock.now())) + 1_000
    await store_workflow(first)
    for number in range(SCHEDULES):
        schedule = Schedule(
            id=f"s{number}", workflow=FLOW.name, interval_s=1.0, starts_at=start, input=AT
        )
        await ScheduleStore(first, WORLD.clock, WORLD.ids).add(schedule)

    dispatched = []
    for tick in range(TICKS):
        results = await asyncio.gather(
            *(scheduler.dispatch(start + tick) for scheduler in schedulers)
        )
        dispatched += [outcome for outcomes in results for outcome in outcomes]
    last = await asyncio.gather(
        *(scheduler.dispatch(start + TICKS - 1) for scheduler in schedulers)
    )

    headers = (await first.archive.list_headers(ExecutionFilter(limit=1_000))).headers
    ticks = sorted((header.labels["schedule"], header.labels["runnel.tick"]) for header in headers)
    assert last == [[], []]
    assert len(ticks) == len(set(ticks)) == SCHEDULES * TICKS
    assert {outcome.execution_id for outcome in dispatched} == {
        header.execution_id for header in headers
    }
    kept = await ScheduleStore(second, WORLD.clock, WORLD.ids).list()
    assert [(schedule.progress.fired, schedule.progress.missed) for schedule in kept] == [
        (TICKS, 0)
    ] * 3


async def test_a_scheduler_that_is_cancelled_anywhere_neither_loses_nor_repeats_a_tick(
    open_backend: Open,
) -> None:
    """Each tick's dispatch is cancelled two loop iterations later than the one before it."""
    backend = await open_backend()
    start = float(int(WORLD.clock.now())) + 1_000
    await store_workflow(backend)
    schedule = Schedule(id="s", workflow=FLOW.name, interval_s=1.0, starts_at=start, input=AT)
    await ScheduleStore(backend, WORLD.clock, WORLD.ids).add(schedule)
    other = build_scheduler(await open_backend(), WORLD, EventBus())

    for tick in range(TICKS):
        dying = build_scheduler(backend, WORLD, EventBus())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(dying.dispatch(start + tick))
            for _ in range(2 * tick):
                await asyncio.sleep(0)
            task.cancel()
        await other.dispatch(start + tick)

    headers = (await backend.archive.list_headers(ExecutionFilter(limit=1_000))).headers
    assert len({header.labels["runnel.tick"] for header in headers}) == len(headers) == TICKS


async def test_concurrent_receivers_start_one_execution_for_each_delivery(
    open_backend: Open,
) -> None:
    backends = [await open_backend(), await open_backend()]
    await store_workflow(backends[0])
    webhook = Webhook(workflow=FLOW.name, kind=WebhookKind.NONE, delivery_id="{{ body }}")
    await WebhookStore(backends[0], WORLD.clock).add(webhook)
    receivers = [
        WebhookReceiver(
            StoreClient(backend, WORLD.clock, WORLD.ids, get_completion=lambda _id: Completion()),
            backend.archive,
            WORLD.clock,
            NoSecrets(),
        )
        for backend in backends
    ]
    known = await WebhookStore(backends[1], WORLD.clock).find(FLOW.name)
    assert known is not None
    deliveries = [Delivery.from_pairs([], [], b"%d" % number) for number in range(TICKS)]

    received = await asyncio.gather(
        *(receiver.receive(known, delivery) for delivery in deliveries for receiver in receivers)
    )

    headers = (await backends[0].archive.list_headers(ExecutionFilter(limit=1_000))).headers
    assert {outcome.execution_id for outcome in received} == {
        header.execution_id for header in headers
    }
    assert len(headers) == TICKS


async def test_a_scheduled_execution_runs_with_the_time_of_its_tick(engine: EmbeddedEngine) -> None:
    await engine.client.library.store(FLOW)
    schedules = ScheduleStore(engine.backend, engine.clock, WORLD.ids)
    start = float(int(engine.clock.now())) + 100
    await schedules.add(
        Schedule(id="s", workflow=FLOW.name, interval_s=60.0, starts_at=start, input=AT)
    )
    scheduler = build_scheduler(engine.backend, WORLD, engine.event_bus, engine.client)

    [outcome] = await scheduler.dispatch(start)

    view = await wait_for_end(engine, ExecutionId(str(outcome.execution_id)))
    assert view.status is ExecutionState.COMPLETED
    assert view.output == {"at": int(start)}


async def test_an_overlap_is_skipped_or_cancels_the_running_execution(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    work.gate("a")
    await engine.client.library.store(FLOW)
    schedules = ScheduleStore(engine.backend, engine.clock, WORLD.ids)
    start = float(int(engine.clock.now())) + 100
    for overlap in (Overlap.SKIP, Overlap.CANCEL):
        await schedules.add(
            Schedule(
                id=overlap.value,
                workflow=FLOW.name,
                interval_s=60.0,
                starts_at=start,
                input=AT,
                overlap=overlap,
            )
        )
    scheduler = build_scheduler(engine.backend, WORLD, engine.event_bus, engine.client)

    first = {outcome.schedule_id: outcome for outcome in await scheduler.dispatch(start)}
    await wait_until(lambda: work.running == 2, DEADLINE_S)
    second = {outcome.schedule_id: outcome for outcome in await scheduler.dispatch(start + 60)}
    cancelled = await wait_for_end(engine, ExecutionId(str(first["cancel"].execution_id)))
    work.gates["a"].set()
    kept = await wait_for_end(engine, ExecutionId(str(first["skip"].execution_id)))

    assert list(second) == ["cancel"]
    assert (cancelled.status, kept.status) == ("CANCELLED", "COMPLETED")
    assert (await schedules.get("skip")).record.progress.skipped == 1
    await wait_for_end(engine, ExecutionId(str(second["cancel"].execution_id)))


async def store_workflow(backend: Backend) -> None:
    await WorkflowLibrary(
        backend, DefinitionCache(backend.archive, WORLD.clock), WORLD.clock
    ).store(FLOW)
