"""Triggers on real stores: two who do the same at the same time start each execution once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from runnel.app.engine import ClockAndIds, Engine
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
    """Each call is another process's, as far as the store can tell."""
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
    for each in opened:
        await each.close()


async def test_ticks_that_two_processes_fire_at_the_same_time_are_fired_once(
    open_backend: Open,
) -> None:
    first, second = await open_backend(), await open_backend()
    one, two = build_scheduler(first, WORLD, EventBus()), build_scheduler(second, WORLD, EventBus())
    start = float(int(WORLD.clock.now())) + 1_000
    await keep_workflow(first)
    for number in range(SCHEDULES):
        schedule = Schedule(
            id=f"s{number}", workflow=FLOW.name, interval_s=1.0, starts_at=start, input=AT
        )
        await ScheduleStore(first, WORLD.clock, WORLD.ids).add(schedule)

    told = []
    for tick in range(TICKS):
        found = await asyncio.gather(*(each.dispatch(start + tick) for each in (one, two)))
        told += [outcome for outcomes in found for outcome in outcomes]
    last = await asyncio.gather(*(each.dispatch(start + TICKS - 1) for each in (one, two)))

    headers = (await first.archive.list_headers(ExecutionFilter(limit=1_000))).headers
    ticks = sorted((each.labels["schedule"], each.labels["runnel.tick"]) for each in headers)
    assert last == [[], []]
    assert len(ticks) == len(set(ticks)) == SCHEDULES * TICKS
    assert {outcome.execution_id for outcome in told} == {each.execution_id for each in headers}
    kept = await ScheduleStore(second, WORLD.clock, WORLD.ids).list()
    assert [(each.progress.fired, each.progress.missed) for each in kept] == [(TICKS, 0)] * 3


async def test_one_that_breaks_off_anywhere_loses_and_repeats_no_tick(open_backend: Open) -> None:
    """Cancelled after ever more turns of the loop: in the middle of each of its calls."""
    backend = await open_backend()
    start = float(int(WORLD.clock.now())) + 1_000
    await keep_workflow(backend)
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
    assert len({each.labels["runnel.tick"] for each in headers}) == len(headers) == TICKS


async def test_deliveries_that_two_processes_receive_at_the_same_time_are_executions_once(
    open_backend: Open,
) -> None:
    backends = [await open_backend(), await open_backend()]
    await keep_workflow(backends[0])
    webhook = Webhook(workflow=FLOW.name, kind=WebhookKind.NONE, delivery_id="{{ body }}")
    await WebhookStore(backends[0], WORLD.clock).add(webhook)
    receivers = [
        WebhookReceiver(
            StoreClient(each, WORLD.clock, WORLD.ids, get_completion=lambda _id: Completion()),
            each.archive,
            WORLD.clock,
            NoSecrets(),
        )
        for each in backends
    ]
    known = await WebhookStore(backends[1], WORLD.clock).find(FLOW.name)
    assert known is not None
    deliveries = [Delivery.from_pairs([], [], b"%d" % number) for number in range(TICKS)]

    received = await asyncio.gather(
        *(each.receive(known, delivery) for delivery in deliveries for each in receivers)
    )

    headers = (await backends[0].archive.list_headers(ExecutionFilter(limit=1_000))).headers
    assert {each.execution_id for each in received} == {each.execution_id for each in headers}
    assert len(headers) == TICKS


async def test_what_a_schedule_starts_is_run_with_its_tick(engine: Engine) -> None:
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


async def test_an_overlap_is_skipped_or_cancelled_for_real(
    engine: Engine, work: WorkHandler
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

    first = {each.schedule_id: each for each in await scheduler.dispatch(start)}
    await wait_until(lambda: work.running == 2, DEADLINE_S)
    second = {each.schedule_id: each for each in await scheduler.dispatch(start + 60)}
    cancelled = await wait_for_end(engine, ExecutionId(str(first["cancel"].execution_id)))
    work.gates["a"].set()
    kept = await wait_for_end(engine, ExecutionId(str(first["skip"].execution_id)))

    assert list(second) == ["cancel"]
    assert (cancelled.status, kept.status) == ("CANCELLED", "COMPLETED")
    assert (await schedules.get("skip")).record.progress.skipped == 1
    await wait_for_end(engine, ExecutionId(str(second["cancel"].execution_id)))


async def keep_workflow(backend: Backend) -> None:
    await WorkflowLibrary(backend.archive, DefinitionCache(backend.archive, WORLD.clock)).store(
        FLOW
    )
