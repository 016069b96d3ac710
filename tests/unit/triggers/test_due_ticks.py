"""Decisions about due ticks, with and without a running execution."""

import msgspec
import pytest

from runnel.core.ids import ExecutionId
from runnel.triggers.due_ticks import (
    DueTicks,
    TickResult,
    compute_wake_time,
    derive_tick_execution_id,
    plan_ticks,
    record_results,
)
from runnel.triggers.schedule import (
    PlannedTick,
    ScheduleProgress,
    ScheduleRecord,
    decode_schedule,
    encode_schedule,
)
from runnel.views.trigger import Overlap, Schedule

LAST = ExecutionId("before")
NOW = 100.0


def make_record(overlap: Overlap = Overlap.ALLOW, **progress: object) -> ScheduleRecord:
    return ScheduleRecord(
        schedule=Schedule(
            id="s", workflow="w", interval_s=10.0, starts_at=0.0, overlap=overlap, labels={"a": "b"}
        ),
        nonce="n1",
        created_at=0.0,
        progress=ScheduleProgress(cursor=0.0, last_execution=LAST, **progress),  # type: ignore[arg-type]  # each test gives what fits
    )


@pytest.mark.parametrize(
    ("overlap", "is_last_final", "fired", "skipped", "cancels"),
    [
        (Overlap.ALLOW, True, [80.0, 90.0], 0, None),
        (Overlap.ALLOW, False, [80.0, 90.0], 0, None),
        (Overlap.SKIP, True, [90.0], 1, None),
        (Overlap.SKIP, False, [], 2, None),
        (Overlap.CANCEL, True, [90.0], 1, None),
        (Overlap.CANCEL, False, [90.0], 1, LAST),
    ],
)
def test_the_overlap_rule_decides_which_ticks_are_fired(
    overlap: Overlap, is_last_final: bool, fired: list[float], skipped: int, cancels: str | None
) -> None:
    before = make_record(overlap)

    after = plan_ticks(before, DueTicks((80.0, 90.0), 3), NOW, is_last_final=is_last_final).progress

    assert [planned.tick for planned in after.planned] == fired
    assert (after.cursor, after.skipped, after.missed, after.cancels) == (90.0, skipped, 3, cancels)
    assert after.last_skipped == (None if not skipped else 90.0 if not fired else 80.0)
    assert after.last_execution == (derive_tick_execution_id(before, 90.0) if fired else LAST)


def test_if_all_ticks_are_missed_the_cursor_moves_to_now() -> None:
    after = plan_ticks(make_record(), DueTicks((), 9), NOW, is_last_final=True).progress

    assert (after.cursor, after.missed, after.planned) == (NOW, 9, ())


def test_the_cursor_never_moves_back() -> None:
    before = msgspec.structs.replace(make_record(), progress=ScheduleProgress(cursor=500.0))

    assert plan_ticks(before, DueTicks((), 1), NOW, is_last_final=True).progress.cursor == 500.0


def test_an_execution_id_is_derived_from_schedule_and_tick() -> None:
    first = make_record()
    again = msgspec.structs.replace(make_record(Overlap.SKIP, fired=7), created_at=9.0)
    later = msgspec.structs.replace(first, nonce="n2")
    other = msgspec.structs.replace(
        first, schedule=msgspec.structs.replace(first.schedule, id="other")
    )

    ids = [derive_tick_execution_id(record, 10.0) for record in (first, again, later, other)]

    assert ids[0] == ids[1]
    assert len({*ids, derive_tick_execution_id(first, 10.000001)}) == 4


def test_results_of_ticks_are_counted() -> None:
    plan = (PlannedTick(80.0, ExecutionId("x")), PlannedTick(90.0, ExecutionId("y")))
    before = make_record(planned=plan, cancels=LAST, fired=5, failed=1, last_error="old")
    fired = TickResult(schedule_id="s", tick=80.0, execution_id=ExecutionId("x"))
    refused = TickResult(schedule_id="s", tick=90.0, error="no workflow 'w'")

    failed = record_results(before, [fired, refused]).progress
    right = record_results(before, [refused, fired]).progress

    assert (failed.fired, failed.failed, failed.last_error) == (6, 2, "no workflow 'w'")
    assert (failed.planned, failed.cancels, failed.last_tick) == ((), None, 90.0)
    assert right.last_error is None


def test_a_schedule_wakes_at_its_next_tick_or_at_once_for_planned_ticks() -> None:
    idle = make_record()
    paused = msgspec.structs.replace(
        idle, schedule=msgspec.structs.replace(idle.schedule, is_paused=True)
    )
    busy = msgspec.structs.replace(
        paused, progress=ScheduleProgress(cursor=0.0, planned=(PlannedTick(1.0, LAST),))
    )

    assert [compute_wake_time(record) for record in (idle, paused, busy)] == [10.0, None, 0.0]


def test_a_schedule_is_equal_after_storage() -> None:
    before = make_record(
        planned=(PlannedTick(80.0, ExecutionId("x")),), cancels=LAST, last_error="e"
    )

    assert decode_schedule(encode_schedule(before)) == before


def test_a_schedule_of_the_first_format_can_be_read() -> None:
    data = (
        b'{"schedule":{"id":"s","workflow":"w","cron":"@daily","overlap":"skip"},"nonce":"n",'
        b'"created_at":1.0,"progress":{"cursor":2.0,"planned":[[3.0,"t1"]]},"format":1}'
    )

    record = decode_schedule(data)

    assert record.schedule == Schedule(id="s", workflow="w", cron="@daily", overlap=Overlap.SKIP)
    assert record.progress == ScheduleProgress(
        cursor=2.0, planned=(PlannedTick(3.0, ExecutionId("t1")),)
    )
