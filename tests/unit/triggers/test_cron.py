"""Cron expressions in time zones, also around changes of daylight saving time."""

from datetime import datetime
from itertools import islice

import pytest

from runnel.triggers.cron import (
    CronError,
    UnknownZoneError,
    check_cron,
    iterate_cron_times,
    load_zone,
)

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def shown(cron: str, zone: str, after: str, count: int) -> list[str]:
    times = islice(iterate_cron_times(cron, at(after), load_zone(zone)), count)
    return [datetime.fromtimestamp(time, load_zone(zone)).isoformat() for time in times]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-01-31T03:00:00Z", ["2026-02-01T03:00:00+00:00"]),
        ("0 3 * * *", "UTC", "2026-01-31T02:59:59.5Z", ["2026-01-31T03:00:00+00:00"]),
        ("*/20 * * * *", "UTC", "2026-01-01T00:25:00Z", ["2026-01-01T00:40:00+00:00"]),
        ("@weekly", "UTC", "2026-01-01T00:00:00Z", ["2026-01-04T00:00:00+00:00"]),
        (" @Hourly ", "UTC", "2026-01-01T00:00:00Z", ["2026-01-01T01:00:00+00:00"]),
        ("30 15 10 * * mon-fri", "UTC", "2026-01-02T11:00:00Z", ["2026-01-05T10:15:30+00:00"]),
        ("0 0 L * *", "UTC", "2028-02-01T00:00:00Z", ["2028-02-29T00:00:00+00:00"]),
        ("0 9 * * MON#1", "UTC", "2026-02-03T00:00:00Z", ["2026-03-02T09:00:00+00:00"]),
        ("0 9 1 * 1", "UTC", "2026-06-01T10:00:00Z", ["2026-06-08T09:00:00+00:00"]),
        ("0 9 * * *", BERLIN, "2026-01-01T00:00:00Z", ["2026-01-01T09:00:00+01:00"]),
    ],
)
def test_an_expression_has_its_next_time(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    assert shown(cron, zone, after, 1) == expected


# In Berlin, the hour from 2 to 3 does not exist on 2026-03-29 and exists twice on 2026-10-25.
@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            "2026-03-28T03:00:00+01:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
            id="a skipped time fires at the end of the gap",
        ),
        pytest.param(
            "0,30 2,3 * * *",
            "2026-03-28T04:00:00+01:00",
            [
                "2026-03-29T03:00:00+02:00",
                "2026-03-29T03:30:00+02:00",
                "2026-03-30T02:00:00+02:00",
            ],
            id="several skipped times fire once",
        ),
        pytest.param(
            "30 2 * * *",
            "2026-10-24T03:00:00+02:00",
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
            id="a repeated time fires the first time only",
        ),
        pytest.param(
            "30 2 * * *",
            "2026-10-25T02:15:00+01:00",
            ["2026-10-26T02:30:00+01:00"],
            id="a repeated time does not fire again in the second pass",
        ),
        pytest.param(
            "*/30 * * * *",
            "2026-03-29T01:30:00+01:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"],
            id="an all-day expression skips the gap",
        ),
        pytest.param(
            "0 * * * *",
            "2026-10-25T01:00:00+02:00",
            [
                "2026-10-25T02:00:00+02:00",
                "2026-10-25T02:00:00+01:00",
                "2026-10-25T03:00:00+01:00",
            ],
            id="an all-day expression fires in both passes",
        ),
        pytest.param(
            "0 30 2 * * *",
            "2026-03-28T03:00:00+01:00",
            ["2026-03-30T02:30:00+02:00"],
            id="with seconds, a skipped time does not fire",
        ),
    ],
)
def test_daylight_saving_time_is_followed(cron: str, after: str, expected: list[str]) -> None:
    assert shown(cron, BERLIN, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("61 * * * *", "the minute of '61 * * * *' is '61'; expected 0 to 59, a list"),
        ("* 24 * * *", "the hour of '* 24 * * *' is '24'; expected 0 to 23"),
        ("* * 0 * *", "the day-of-month of '* * 0 * *' is '0'; expected 1 to 31"),
        ("* * * foo *", "the month of '* * * foo *' is 'foo'; expected 1 to 12, or JAN"),
        ("* * * * 8", "the day-of-week of '* * * * 8' is '8'; expected 0 to 7"),
        ("60 * * * * *", "the second of '60 * * * * *' is '60'"),
        ("* * * * * * *", "got 7 in '* * *"),
        ("0 3 * *", "expected five fields, minute hour day month weekday (or six"),
        ("", "got 0 in ''"),
        ("*/0 * * * *", "the minute of '*/0 "),
        ("5-1 * * * *", "the minute of '5-1 "),
        (
            "0 0 30 2 *",
            "the day-of-month of '0 0 30 2 *' is '30', but none of its months has that day",
        ),
        ("0 0 31 4,6 *", "is '31', but none of its months has that day"),
        ("@dayly", "there is no '@dayly'; expected '@daily'"),
        ("@reboot", "there is no '@reboot'; expected @yearly, "),
        ("1" * 201, "expected at most 200 characters, got 201"),
    ],
)
def test_a_wrong_expression_is_refused_with_the_wrong_field(cron: str, message: str) -> None:
    with pytest.raises(CronError) as caught:
        check_cron(cron)

    assert message in str(caught.value)


def test_times_end_with_the_last_year_of_datetime() -> None:
    times = list(iterate_cron_times("0 0 1 1 *", at("9990-06-01T00:00:00Z"), load_zone("UTC")))

    assert len(times) == 9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Berlim", "there is no time zone 'Europe/Berlim', did you mean Europe/Berlin?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("new york", "did you mean America/New_York?"),
        ("America", "there is no time zone 'America'"),
        ("../../etc/passwd", "there is no time zone"),
        ("/etc/passwd", "there is no time zone"),
        ("", "there is no time zone ''"),
        ("x\0y", "there is no time zone"),
        ("\ud800", "there is no time zone"),
        ("0123456789", "expected a name such as Europe/Berlin or UTC"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(UnknownZoneError) as caught:
        load_zone(name)

    assert message in str(caught.value)
