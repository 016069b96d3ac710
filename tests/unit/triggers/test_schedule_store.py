"""Schedules are added, changed and removed while a scheduler runs."""

import msgspec
import pytest

from runnel.core.values import Json
from runnel.errors import ConflictError, InvalidTriggerError, NotFoundError
from runnel.triggers.schedule_store import PAGE_SIZE, build_schedule_view
from runnel.views.trigger import Overlap, Schedule
from tests.unit.triggers.scheduler_harness import START, SchedulerHarness

GOOD = Schedule(id="s", workflow="report", cron="@daily")


@pytest.fixture
async def stage() -> SchedulerHarness:
    made = SchedulerHarness()
    await made.add_workflow()
    return made


async def test_an_interval_starts_when_the_schedule_is_added(stage: SchedulerHarness) -> None:
    await stage.clock.advance(0.7)

    record = await stage.schedules.add(Schedule(id="s", workflow="report", interval_s=90.0))

    assert record.schedule.starts_at == START
    assert build_schedule_view(record, START).next_ticks[0] == "2023-11-14T22:14:50+00:00"


async def test_a_change_of_other_fields_keeps_the_ticks(stage: SchedulerHarness) -> None:
    await stage.add(interval_s=90.0, own_labels={"runnel.source": "/x"})
    before = await stage.progress()
    await stage.clock.advance(100.0)

    def change(schedule: Schedule) -> Schedule:
        return msgspec.structs.replace(
            schedule, labels={"a": "b"}, starts_at=None, own_labels={}, id="other"
        )

    record = await stage.schedules.change("s", change)

    assert record.progress == before
    assert (record.schedule.id, record.schedule.starts_at) == ("s", START)
    assert record.schedule.own_labels == {"runnel.source": "/x"}


async def test_a_change_of_the_timing_applies_from_now_on(stage: SchedulerHarness) -> None:
    await stage.add(interval_s=90.0)
    await stage.clock.advance(1_000.0)

    record = await stage.schedules.change(
        "s", lambda schedule: msgspec.structs.replace(schedule, interval_s=60.0, starts_at=None)
    )
    fired = await stage.scheduler().tick()

    assert (record.progress.cursor, record.schedule.starts_at) == (START + 1_000, START + 1_000)
    assert fired == 0


async def test_a_change_is_repeated_after_a_concurrent_change(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    calls: list[str] = []
    raced = stage.schedules

    def label(schedule: Schedule, name: str) -> Schedule:
        return msgspec.structs.replace(schedule, labels={**schedule.labels, name: "x"})

    def change(schedule: Schedule) -> Schedule:
        calls.append("first")
        if len(calls) == 1:
            key = ("schedule", "s")
            known = stage.backend.state.records[key]
            stage.backend.state.records[key] = msgspec.structs.replace(known, revision=99)
        return label(schedule, "mine")

    record = await raced.change("s", change)

    assert len(calls) == 2
    assert record.schedule.labels == {"mine": "x"}


async def test_a_second_schedule_with_the_same_id_is_refused(stage: SchedulerHarness) -> None:
    await stage.schedules.add(GOOD)

    with pytest.raises(ConflictError, match="a schedule 's' already exists"):
        await stage.schedules.add(GOOD)


async def test_a_schedule_of_a_deleted_workflow_can_be_paused_but_not_get_an_unknown_one(
    stage: SchedulerHarness,
) -> None:
    await stage.schedules.add(GOOD)
    stage.backend.state.definitions.clear()

    record = await stage.schedules.pause("s")

    assert record.schedule.is_paused
    with pytest.raises(NotFoundError, match="no workflow 'other'"):
        await stage.schedules.change(
            "s", lambda schedule: msgspec.structs.replace(schedule, workflow="other")
        )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": ""}, "id: expected up to 100 letters, digits, '.', '_' and '-'"),
        ({"id": "a/b"}, "id: expected up to 100 letters"),
        ({"id": "x" * 101}, "id: expected up to 100 letters"),
        ({"workflow": ""}, "workflow: expected 1 to 500 characters, got 0"),
        ({"version": 0}, "version: expected at least 1, got 0"),
        ({"cron": None}, "cron: expected either cron or interval_s, got neither"),
        ({"interval_s": 5.0}, "cron: expected either cron or interval_s, got both"),
        ({"cron": "x"}, "cron: expected five fields"),
        ({"cron": None, "interval_s": 0.9}, "interval_s: expected 1 second to 10 years, got 0.9"),
        ({"cron": None, "interval_s": float("nan")}, "interval_s: expected 1 second"),
        ({"timezone": "Mars"}, "timezone: there is no time zone 'Mars'"),
        ({"catch_up": -1}, "catch_up: expected 0 to 100, got -1"),
        ({"starts_at": float("inf")}, "starts_at: expected a time up to the year 9000"),
        ({"ends_at": 1e15}, "ends_at: expected a time up to the year 9000"),
        ({"starts_at": 2e9, "ends_at": 1e9}, "ends_at: expected a time after starts_at"),
        ({"ends_at": START}, "cron: the schedule has no future tick"),
        ({"labels": {"runnel.x": "y"}}, "labels: 'runnel.x' begins with 'runnel.'"),
        (
            {"labels": {"schedule": "y"}},
            "labels: 'schedule' is reserved for the id of the schedule",
        ),
        ({"labels": {"": "y"}}, "labels: the key of a label: expected 1 to 100"),
        ({"input": {"a": float("nan")}}, "input.a: JSON has no NaN"),
        ({"input": {"a": "{{ tick. }}"}}, "input.a: "),
        ({"input": {"a": "{{ nodes }}"}}, "input.a: "),
        ({"input": "x" * 300_000}, "input: expected at most 262,144 bytes, got 300,002"),
    ],
)
async def test_a_wrong_schedule_is_refused_and_not_stored(
    stage: SchedulerHarness, fields: dict[str, Json], problem: str
) -> None:
    with pytest.raises(InvalidTriggerError) as caught:
        await stage.schedules.add(msgspec.structs.replace(GOOD, **fields))

    assert caught.value.problems[0].startswith(problem)
    assert stage.backend.state.records == {}


async def test_all_problems_of_a_schedule_are_reported_at_once(stage: SchedulerHarness) -> None:
    bad = msgspec.structs.replace(GOOD, id="", timezone="Mars", catch_up=1_000, labels={"": ""})

    with pytest.raises(InvalidTriggerError, match="schedule '': 4 problems"):
        await stage.schedules.add(bad)

    assert stage.backend.state.records == {}


@pytest.mark.parametrize("name", ["none", "", "a/b", "\ud800", "x" * 1_000])
async def test_an_unknown_schedule_is_not_found(stage: SchedulerHarness, name: str) -> None:
    for call in (
        stage.schedules.get(name),
        stage.schedules.remove(name),
        stage.schedules.pause(name),
    ):
        with pytest.raises(NotFoundError, match="no schedule"):
            await call


async def test_schedules_on_all_pages_are_fired(stage: SchedulerHarness) -> None:
    for number in range(PAGE_SIZE + 5):
        await stage.add(f"s{number:04}", overlap=Overlap.SKIP)
    await stage.clock.advance(10.0)

    fired = await stage.scheduler().tick()

    listed = await stage.schedules.list(after="s0001", limit=2)
    assert fired == PAGE_SIZE + 5
    assert [record.schedule.id for record in listed] == ["s0002", "s0003"]


async def test_pause_and_resume_resets_a_cursor_that_is_far_in_the_future(
    stage: SchedulerHarness,
) -> None:
    await stage.add()
    await stage.scheduler().dispatch(START + 10 * 366 * 86_400)
    lost = (await stage.schedules.get("s")).record

    await stage.schedules.pause("s")
    await stage.schedules.pause("s", is_paused=False)
    await stage.clock.advance(10.0)

    assert lost.progress.cursor > START + 9 * 366 * 86_400
    assert await stage.scheduler().tick() == 1
