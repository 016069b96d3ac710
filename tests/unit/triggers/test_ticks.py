"""The ticks of a schedule, and which of them are due."""

from datetime import datetime

import pytest

from runnel.triggers.cron import compute_next_ticks
from runnel.triggers.due_ticks import (
    CATCH_UP_MAX,
    COUNTED_TICKS_MAX,
    DueTicks,
    compute_due_ticks,
)
from runnel.views.trigger import Schedule

HOUR = 3_600.0
START = 1_000_000.0


def every(interval_s: float, **changes: object) -> Schedule:
    fields = {"id": "s", "workflow": "w", "interval_s": interval_s, "starts_at": START, **changes}
    return Schedule(**fields)  # type: ignore[arg-type]  # each test gives what fits


def by_cron(cron: str, **changes: object) -> Schedule:
    return Schedule(id="s", workflow="w", cron=cron, **changes)  # type: ignore[arg-type]  # as above


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("interval_s", "after", "expected"),
    [
        (10.0, START - 1_000, [START, START + 10, START + 20]),
        (10.0, START, [START + 10, START + 20]),
        (10.0, START + 9.999, [START + 10, START + 20]),
        (10.0, START + 10, [START + 20]),
        (1.5, START + 3, [START + 4.5, START + 6]),
        (0.1 + 0.2 + 1, START, [START + 1.3, START + 2.6, START + 3.9]),
    ],
)
def test_intervals_count_from_the_start_of_the_schedule(
    interval_s: float, after: float, expected: list[float]
) -> None:
    assert compute_next_ticks(every(interval_s), after, len(expected)) == expected


def test_the_ticks_of_an_interval_do_not_depend_on_the_time_of_the_call() -> None:
    schedule = every(7.7)
    all_at_once = compute_next_ticks(schedule, START, 1_000)

    one_by_one = [compute_next_ticks(schedule, after, 1)[0] for after in (START, *all_at_once[:-1])]

    assert one_by_one == all_at_once
    assert len(set(all_at_once)) == 1_000


def test_ticks_are_between_start_and_end() -> None:
    schedule = by_cron(
        "0 * * * *", starts_at=at("2026-01-01T10:00:00Z"), ends_at=at("2026-01-01T12:00:00Z")
    )

    ticks = compute_next_ticks(schedule, 0.0, 10)

    hours = [datetime.fromtimestamp(tick).astimezone().timestamp() for tick in ticks]
    assert hours == [at(f"2026-01-01T{hour}:00:00Z") for hour in (10, 11, 12)]
    assert compute_next_ticks(schedule, at("2026-01-01T12:00:00Z"), 1) == []


def test_a_tick_within_a_second_after_the_start_is_included() -> None:
    schedule = by_cron("0 * * * *", starts_at=at("2026-01-01T09:59:59.5Z"))

    assert compute_next_ticks(schedule, 0.0, 1) == [at("2026-01-01T10:00:00Z")]


@pytest.mark.parametrize(
    ("catch_up", "now", "expected"),
    [
        pytest.param(1, START + HOUR - 1, DueTicks(), id="nothing is due"),
        pytest.param(0, START + HOUR, DueTicks((START + HOUR,)), id="one that is exactly due"),
        pytest.param(0, START + HOUR + 60, DueTicks((START + HOUR,)), id="late, but not missed"),
        pytest.param(0, START + HOUR + 61, DueTicks((), 1), id="missed, without catch-up"),
        pytest.param(1, START + HOUR + 61, DueTicks((START + HOUR,)), id="missed, with catch-up"),
        pytest.param(
            1,
            START + 3.5 * HOUR,
            DueTicks((START + 3 * HOUR,), 2),
            id="the last of three missed ticks",
        ),
        pytest.param(
            1,
            START + 3 * HOUR + 5,
            DueTicks((START + 2 * HOUR, START + 3 * HOUR), 1),
            id="the last missed tick, and the one that is due now",
        ),
        pytest.param(
            3,
            START + 3.5 * HOUR,
            DueTicks((START + HOUR, START + 2 * HOUR, START + 3 * HOUR)),
            id="all three missed ticks",
        ),
    ],
)
def test_after_an_outage_the_last_missed_ticks_are_due(
    catch_up: int, now: float, expected: DueTicks
) -> None:
    schedule = every(HOUR, catch_up=catch_up)

    assert compute_due_ticks(schedule, cursor=START, now=now) == expected


def test_every_tick_of_the_last_minute_is_due() -> None:
    due = compute_due_ticks(every(1.0, catch_up=0), cursor=START, now=START + 60.5)

    assert due == DueTicks(tuple(START + second for second in range(1, 61)))


@pytest.mark.parametrize(
    "schedule",
    [every(1.0, catch_up=CATCH_UP_MAX), by_cron("* * * * * *", catch_up=CATCH_UP_MAX)],
    ids=["interval", "cron"],
)
def test_years_of_missed_ticks_are_not_counted_one_by_one(schedule: Schedule) -> None:
    now = START + 20 * 365 * 86_400

    due = compute_due_ticks(schedule, cursor=START, now=now)

    assert due.ticks[-1] == now
    assert due.ticks == tuple(now - second for second in range(CATCH_UP_MAX + 60, -1, -1))
    assert due.missed == COUNTED_TICKS_MAX + 1 - len(due.ticks)


def test_rare_ticks_far_in_the_past_are_found() -> None:
    schedule = by_cron("0 0 * * *", catch_up=CATCH_UP_MAX)

    due = compute_due_ticks(schedule, cursor=0.0, now=at("2026-01-01T12:00:00Z"))

    assert len(due.ticks) == CATCH_UP_MAX
    assert due.ticks[-1] == at("2026-01-01T00:00:00Z")
    assert due.missed == COUNTED_TICKS_MAX + 1 - CATCH_UP_MAX
