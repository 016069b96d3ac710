"""The ticks of a schedule: cron expressions, time zones, which ticks come next, which are due."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from math import floor

import msgspec

from runnel.core.wording import find_closest_name, quote_name
from runnel.views.trigger import Schedule

# Cron expressions: five fields, or six with seconds in front, or a word such as @daily.
# A summer-time rule of its zone is followed as Debian's cron does. What names a time of day
# (neither minute nor hour begins with a star) happens once a day: in a skipped hour, as soon as
# that is over; in a repeated hour, the first time. What goes on all day, and what has seconds,
# goes by real time.

CRON_CHARS_MAX = 200
CRON_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_CRON_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L for the last",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday), or SUN to SAT",
}
_CRON_FIELD_NAMES = list(_CRON_FIELDS)
_CRON_FIELDS_MIN = 5
_LAST_DAYS = {"30", "31", "30,31", "30-31"}


class CronError(ValueError):
    """The message says which field is wrong, and what it may be."""


def check_cron(text: str) -> None:
    """Raises CronError."""
    next(iterate_cron_times(text, 0.0, UTC), None)


def iterate_cron_times(text: str, after: float, zone: tzinfo) -> Iterator[float]:
    """In order, later than `after`; none when nothing matches for 50 years. Raises CronError."""
    from cronsim import CronSim, CronSimError

    expression = _expand_alias(text)
    try:
        times = CronSim(expression, datetime.fromtimestamp(after, zone))
    except (CronSimError, AssertionError) as error:
        raise CronError(_describe_problem(text, expression, str(error))) from None
    return _iterate_later_times(times, after)


def _iterate_later_times(times: Iterator[datetime], after: float) -> Iterator[float]:
    try:
        for time in times:
            moment = time.timestamp()
            # In the second pass of a repeated hour, the first one has been.
            if moment > after:
                after = moment
                yield moment
    except (OverflowError, ValueError):  # the end of all calendars
        return


def _expand_alias(text: str) -> str:
    if len(text) > CRON_CHARS_MAX:
        raise CronError(f"expected at most {CRON_CHARS_MAX} characters, got {len(text):,}")
    word = text.strip().lower()
    if not word.startswith("@"):
        return text
    if word not in CRON_ALIASES:
        close = find_closest_name(word, CRON_ALIASES)
        meant = ", ".join(CRON_ALIASES) if close is None else f"'{close}'"
        raise CronError(f"there is no {quote_name(word)}; expected {meant}, or five fields")
    return CRON_ALIASES[word]


def _describe_problem(text: str, expression: str, message: str) -> str:
    """The library says `Bad minute`."""
    parts = expression.split()
    if len(parts) not in {_CRON_FIELDS_MIN, _CRON_FIELDS_MIN + 1}:
        return (
            f"expected five fields, minute hour day month weekday (or six, with seconds in front), "
            f"got {len(parts)} in {quote_name(text)}"
        )
    name = message.removeprefix("Bad ")
    if name not in _CRON_FIELDS:
        return f"{quote_name(text)} can't be read: {message or 'a field is none'}"
    number = _CRON_FIELD_NAMES.index(name) - (_CRON_FIELDS_MIN + 1 - len(parts))
    if name == "day-of-month" and parts[number] in _LAST_DAYS:
        return (
            f"the {name} of {quote_name(text)} is '{parts[number]}', which none of its months has"
        )
    return (
        f"the {name} of {quote_name(text)} is {quote_name(parts[number])}; expected "
        f"{_CRON_FIELDS[name]}, "
        "a list (1,2), a range (1-5) or a step (*/2)"
    )


# Time zones by their names, `Europe/Berlin`, from the machine or from the package tzdata.

CACHED_ZONES_MAX = 100


class UnknownZoneError(ValueError):
    """The message says which one was probably meant."""


@lru_cache(maxsize=CACHED_ZONES_MAX)
def load_zone(name: str) -> tzinfo:
    """Raises UnknownZoneError."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZoneError(
            f"there is no time zone {quote_name(name)}{_suggest_zone(name)}"
        ) from None


def _suggest_zone(name: str) -> str:
    """By the name of the city alone, or by what is written nearly so."""
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    city = "/" + name.strip().replace(" ", "_").lower()
    same_city = next((zone for zone in known if ("/" + zone).lower().endswith(city)), None)
    meant = same_city or find_closest_name(name, known)
    return (
        "; a name is such as Europe/Berlin or UTC" if meant is None else f", did you mean {meant}?"
    )


# A tick that is later than this was missed: no process ran, or the store was away.
MISSED_AFTER_S = 60.0
CATCH_UP_MAX = 100
# Ticks are looked at one by one up to here, 20 ms of them; a minute has 60 at most.
COUNTED_TICKS_MAX = 500
LATEST_TICKS_MAX = CATCH_UP_MAX + 61


class DueTicks(msgspec.Struct, frozen=True):
    """`ticks` are to be fired, in order; `missed` are not, because they are too many."""

    ticks: tuple[float, ...] = ()
    missed: int = 0


def compute_next_ticks(schedule: Schedule, after: float, count: int) -> Sequence[float]:
    """The first `count` that are later than `after`, paused or not; fewer when it ends before.

    Raises CronError or UnknownZoneError for a schedule that was never checked.
    """
    return list(islice(_iterate_ticks(schedule, after), count))


def compute_due_ticks(schedule: Schedule, *, cursor: float, now: float) -> DueTicks:
    """Those behind the cursor and up to `now`.

    What is late by more than a minute was missed, and of that the last `catch_up` are due. All
    else is due, however many ticks a second has.
    """
    behind = takewhile(lambda tick: tick <= now, _iterate_ticks(schedule, cursor))
    ticks = list(islice(behind, COUNTED_TICKS_MAX + 1))
    count = len(ticks)
    if count > COUNTED_TICKS_MAX:
        ticks = _find_latest_ticks(schedule, cursor, now)
    late = [tick for tick in ticks if tick < now - MISSED_AFTER_S]
    fresh = ticks[len(late) :]
    kept = late[max(0, len(late) - schedule.catch_up) :]
    return DueTicks((*kept, *fresh), count - len(kept) - len(fresh))


def _find_latest_ticks(schedule: Schedule, cursor: float, now: float) -> list[float]:
    """The last ones up to `now`, at least as many as may be due: looked for backwards."""
    back_s = float(LATEST_TICKS_MAX)
    while True:
        after = max(cursor, now - back_s)
        ticks = list(takewhile(lambda tick: tick <= now, _iterate_ticks(schedule, after)))
        if len(ticks) >= LATEST_TICKS_MAX or after == cursor:
            return ticks[-LATEST_TICKS_MAX:]
        back_s *= 4


def _iterate_ticks(schedule: Schedule, after: float) -> Iterator[float]:
    if schedule.interval_s is not None:
        ticks = _iterate_intervals(schedule.interval_s, schedule.starts_at or 0.0, after)
    else:
        # A second before, because the first tick may be the very moment of the start.
        start = after if schedule.starts_at is None else max(after, schedule.starts_at - 1.0)
        ticks = iterate_cron_times(schedule.cron or "", start, load_zone(schedule.timezone))
    for tick in ticks:
        if schedule.ends_at is not None and tick > schedule.ends_at:
            return
        if tick > after and (schedule.starts_at is None or tick >= schedule.starts_at):
            yield tick


def _iterate_intervals(interval_s: float, base: float, after: float) -> Iterator[float]:
    """To the microsecond, and without end: so that every process means the same moments."""
    number = max(0, floor((after - base) / interval_s))
    while True:
        yield round(base + number * interval_s, 6)
        number += 1
