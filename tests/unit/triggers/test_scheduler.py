"""Every tick is fired once, with several schedulers and after crashes."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from runnel.core.commands import CancelExecution, Command, CreateExecution
from runnel.core.ids import ExecutionId
from runnel.errors import InputError, StoreError
from runnel.ports import telemetry as names
from runnel.triggers.due_ticks import derive_tick_execution_id, find_due_ticks, plan_ticks
from runnel.triggers.schedule import SCHEDULE_KIND, encode_schedule
from runnel.triggers.scheduler import POLL_INTERVAL_S, TAKE_OVER_AFTER_S
from runnel.views.trigger import Overlap
from tests.unit.triggers.scheduler_harness import START, SchedulerHarness


@pytest.fixture
def stage() -> SchedulerHarness:
    return SchedulerHarness()


async def decide(stage: SchedulerHarness) -> None:
    """Stores a decision and then dies."""
    stored = await stage.schedules.get("s")
    now = stage.clock.now()
    decided = plan_ticks(stored.record, find_due_ticks(stored.record, now), now, is_last_final=True)
    await stage.schedules.store(stored, decided)


async def test_a_tick_starts_one_execution_with_its_labels_and_input(
    stage: SchedulerHarness,
) -> None:
    await stage.add(
        cron="0 1 * * *",
        timezone="Europe/Berlin",
        input={"day": "{{ tick.date }}", "of": "{{ schedule.id }}", "n": 1},
        labels={"team": "x"},
    )
    await stage.clock.advance(86_400.0)

    fired = await stage.scheduler().tick()

    [header] = await stage.started()
    record = (await stage.schedules.get("s")).record
    [command] = await stage.sent()
    assert fired == 1
    assert header.execution_id == record.progress.last_execution
    assert header.execution_id == derive_tick_execution_id(record, record.progress.last_tick or 0.0)
    assert header.labels == {
        "team": "x",
        "schedule": "s",
        "runnel.tick": "2023-11-15T00:00:00Z",
    }
    assert isinstance(command, CreateExecution)
    assert msgspec.json.decode(command.input.data) == {
        "day": "2023-11-15",
        "of": "s",
        "n": 1,
    }
    assert stage.telemetry.named(names.SCHEDULE_FIRED) == [
        {"schedule": "s", "tick": record.progress.last_tick, "execution_id": header.execution_id}
    ]


async def test_each_tick_is_fired_once_by_many_schedulers(stage: SchedulerHarness) -> None:
    for number in range(5):
        await stage.add(f"s{number}", interval_s=1.0)
    schedulers = [stage.scheduler() for _ in range(4)]

    fired = 0
    for _ in range(10):
        await stage.clock.advance(1.0)
        fired += sum(await asyncio.gather(*(scheduler.tick() for scheduler in schedulers)))

    assert fired == 50
    assert await stage.ticks() == [float(n) for n in range(1, 11) for _ in range(5)]
    assert len({header.execution_id for header in await stage.started()}) == 50


async def test_a_decision_of_a_dead_scheduler_is_carried_out_by_another(
    stage: SchedulerHarness,
) -> None:
    """Waits first, because the process that decided usually fires the tick itself."""
    await stage.add()
    await stage.clock.advance(10.0)
    await decide(stage)
    scheduler = stage.scheduler()

    at_once = await scheduler.tick()
    await stage.clock.advance(TAKE_OVER_AFTER_S - 0.1)
    before = await scheduler.tick()
    await stage.clock.advance(0.2)
    after = await scheduler.tick()

    assert (at_once, before, after) == (0, 0, 1)
    assert await stage.ticks() == [10.0]
    assert (await stage.progress()).planned == ()


async def test_a_tick_fired_by_a_dead_scheduler_is_not_fired_again(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    await stage.clock.advance(10.0)
    await decide(stage)
    scheduler, away = stage.scheduler_away()
    away.failing = "put"
    with pytest.raises(StoreError):
        await scheduler.dispatch()
    before = await stage.ticks()

    await stage.scheduler().dispatch()

    assert before == [10.0]
    assert await stage.ticks() == [10.0]
    assert (await stage.progress()).fired == 1


@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "answer lost"])
async def test_a_decision_that_could_not_be_stored_is_repeated(
    stage: SchedulerHarness, is_done: bool
) -> None:
    await stage.add()
    scheduler, away = stage.scheduler_away()
    away.failing, away.is_done = "put", is_done
    await stage.clock.advance(10.0)

    first = await scheduler.tick()
    await scheduler.tick()
    await stage.clock.advance(TAKE_OVER_AFTER_S)
    await scheduler.tick()

    assert first == 0
    assert stage.telemetry.named(names.STORE_FAILED) == [
        {"call": "schedule", "schedule": "s", "error": "gone"}
    ]
    assert await stage.ticks() == [10.0]
    assert (await stage.progress()).fired == 1


async def test_overlap_skip_fires_nothing_until_the_last_execution_has_finished(
    stage: SchedulerHarness,
) -> None:
    await stage.add(overlap=Overlap.SKIP)
    scheduler = stage.scheduler()
    for _ in range(3):
        await stage.clock.advance(10.0)
        await scheduler.tick()
    running = await stage.progress()

    stage.end(running.last_execution)
    await stage.clock.advance(10.0)
    await scheduler.tick()

    assert await stage.ticks() == [10.0, 40.0]
    assert (running.fired, running.skipped, running.last_skipped) == (1, 2, START + 30)
    assert stage.telemetry.named(names.SCHEDULE_SKIPPED) == [{"schedule": "s", "count": 1}] * 2


async def test_overlap_cancel_cancels_the_last_execution(stage: SchedulerHarness) -> None:
    await stage.add(overlap=Overlap.CANCEL)
    scheduler = stage.scheduler()
    await stage.clock.advance(10.0)
    await scheduler.tick()
    first = (await stage.progress()).last_execution

    await stage.clock.advance(10.0)
    await scheduler.tick()

    made, cancelled, again = await stage.sent()
    assert isinstance(made, CreateExecution)
    assert isinstance(cancelled, CancelExecution)
    assert isinstance(again, CreateExecution)
    assert (made.execution_id, cancelled.execution_id) == (first, first)
    assert cancelled.reason == "the next tick of schedule 's' is due"


async def test_after_an_outage_the_last_missed_tick_is_fired(stage: SchedulerHarness) -> None:
    await stage.add(interval_s=3_600.0)
    await stage.clock.advance(5 * 3_600.0 + 1_800.0)

    await stage.scheduler().tick()

    progress = await stage.progress()
    assert await stage.ticks() == [5 * 3_600.0]
    assert (progress.fired, progress.missed) == (1, 4)
    assert stage.telemetry.named(names.SCHEDULE_MISSED) == [{"schedule": "s", "count": 4}]


async def test_a_deleted_workflow_is_reported_and_the_next_tick_is_tried(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    definitions = dict(stage.backend.state.definitions)
    stage.backend.state.definitions.clear()
    scheduler = stage.scheduler()
    await stage.clock.advance(10.0)
    await scheduler.tick()
    broken = await stage.progress()

    stage.backend.state.definitions.update(definitions)
    await stage.clock.advance(10.0)
    await scheduler.tick()

    mended = await stage.progress()
    assert (broken.failed, broken.last_error) == (1, "no workflow 'report'")
    assert stage.telemetry.named(names.SCHEDULE_FAILED) == [
        {"schedule": "s", "tick": START + 10, "error": "no workflow 'report'"}
    ]
    assert (mended.fired, mended.failed, mended.last_error) == (1, 1, None)
    assert await stage.ticks() == [20.0]


async def test_ticks_during_a_pause_are_not_fired_later(stage: SchedulerHarness) -> None:
    await stage.add()
    scheduler = stage.scheduler()
    await stage.schedules.pause("s")
    await stage.clock.advance(35.0)
    paused = await scheduler.tick()

    await stage.schedules.pause("s", is_paused=False)
    await stage.clock.advance(10.0)
    await scheduler.tick()

    assert paused == 0
    assert await stage.ticks() == [40.0]


async def test_a_change_or_removal_during_firing_is_kept(
    stage: SchedulerHarness,
) -> None:
    await stage.add("paused")
    await stage.add("removed")
    await stage.clock.advance(10.0)
    scheduler = stage.scheduler()
    send = stage.backend.mailbox.send

    async def meanwhile(commands: Sequence[Command], **named: object) -> None:
        for command in commands:
            if isinstance(command, CreateExecution) and command.labels["schedule"] == "removed":
                await stage.schedules.remove("removed")
            else:
                await stage.schedules.pause("paused")
        await send(commands)

    stage.backend.mailbox.send = meanwhile  # type: ignore[method-assign]  # runs a change during the call
    fired = await scheduler.tick()

    record = (await stage.schedules.get("paused")).record
    assert fired == 2
    assert await stage.ticks() == [10.0, 10.0]
    assert (record.schedule.is_paused, record.progress.fired, record.progress.planned) == (
        True,
        1,
        (),
    )
    assert await stage.backend.records.get(SCHEDULE_KIND, "removed") is None


async def test_dispatch_fires_the_ticks_due_at_the_given_time(stage: SchedulerHarness) -> None:
    await stage.add()
    scheduler = stage.scheduler()

    outcomes = await scheduler.dispatch(START + 25)
    again = await scheduler.dispatch(START + 25)
    earlier = await scheduler.dispatch(START + 5)
    await stage.clock.advance(25.0)
    own = await scheduler.tick()
    await stage.clock.advance(5.0)
    next_ = await scheduler.dispatch()

    assert [(result.schedule_id, result.tick - START) for result in outcomes] == [
        ("s", 10.0),
        ("s", 20.0),
    ]
    assert all(result.execution_id is not None for result in outcomes)
    assert (again, earlier, own) == ([], [], 0)
    assert [result.tick - START for result in next_] == [30.0]


@pytest.mark.parametrize("now", [float("nan"), float("inf"), -1.0, 1e15])
async def test_dispatch_refuses_an_invalid_time(stage: SchedulerHarness, now: float) -> None:
    with pytest.raises(InputError, match="now: expected a time up to the year 9000, got"):
        await stage.scheduler().dispatch(now)


async def test_dispatch_raises_store_error_after_it_fired_all_other_ticks(
    stage: SchedulerHarness,
) -> None:
    await stage.add("a")
    await stage.add("b")
    scheduler, away = stage.scheduler_away()
    away.failing = "put"

    with pytest.raises(StoreError, match="gone"):
        await scheduler.dispatch(START + 10)

    assert len(await stage.started()) == 1


async def test_an_unreadable_schedule_does_not_stop_the_others(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    record = (await stage.schedules.get("s")).record
    strange = msgspec.structs.replace(
        record, schedule=msgspec.structs.replace(record.schedule, interval_s=None, cron="nonsense")
    )
    later = encode_schedule(record).replace(b'"format":1', b'"format":9')
    for key, data in (("bad", b"{}"), ("newer", later), ("strange", encode_schedule(strange))):
        await stage.backend.records.put(SCHEDULE_KIND, key, data, revision=0)
    scheduler = stage.scheduler()
    await stage.clock.advance(10.0)

    fired = [await scheduler.tick() for _ in range(2)]

    assert fired == [1, 0]
    failures = stage.telemetry.named(names.SCHEDULE_FAILED)
    assert [failure["schedule"] for failure in failures] == ["bad", "newer", "strange"]


async def test_the_scheduler_sleeps_until_the_next_tick_or_the_next_poll(
    stage: SchedulerHarness,
) -> None:
    scheduler = stage.scheduler()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scheduler.run(stop))
        await stage.clock.wait_for_sleeper()
        await stage.add(interval_s=4.0)
        await stage.clock.advance(POLL_INTERVAL_S)
        await stage.clock.advance(1.0 - 0.001)
        early = await stage.ticks()
        await stage.clock.advance(0.001)
        first = await stage.ticks()
        await stage.clock.advance(4.0)
        second = await stage.ticks()
        stop.set()

    assert (early, first, second) == ([], [4.0], [4.0, 8.0])


async def test_a_store_failure_is_reported_and_retried(stage: SchedulerHarness) -> None:
    await stage.add(interval_s=4.0)
    scheduler, away = stage.scheduler_away()
    away.failing = "list"
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(scheduler.run(stop))
        await stage.clock.wait_for_sleeper()
        await stage.clock.advance(4.0)
        stop.set()

    assert stage.telemetry.named(names.STORE_FAILED) == [{"call": "schedules", "error": "gone"}]
    assert await stage.ticks() == [4.0]


async def test_a_new_schedule_with_an_old_id_starts_new_executions(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    scheduler = stage.scheduler()
    await scheduler.dispatch(START + 10)
    await stage.schedules.remove("s")
    await stage.add()

    outcomes = await scheduler.dispatch(START + 10)

    ids = {header.execution_id for header in await stage.started()}
    assert [result.tick for result in outcomes] == [START + 10]
    assert len(ids) == 2
    assert ExecutionId(str(outcomes[0].execution_id)) in ids
