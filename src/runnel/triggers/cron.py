"""Computes the ticks of schedules from cron expressions, intervals and time zones."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import islice
from math import floor

from runnel.core.message_text import find_closest_name, quote_name
from runnel.views.trigger import Schedule

# Cron expressions have five fields, or six with seconds in front, or are a word such as @daily.
# Daylight saving time is handled as in Debian's cron. An expression has a time of day if neither
# minute nor hour begins with a star. Such an expression fires once a day. If the clock skips its
# hour, it fires at the end of the gap; if the clock repeats its hour, it fires the first time. All
# other expressions, and expressions with seconds, follow the real time that passes.

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
    """An invalid cron expression. The message names the field and its allowed values."""


def check_cron(text: str) -> None:
    """Raises CronError if the expression is invalid."""
    next(iterate_cron_times(text, 0.0, UTC), None)


def iterate_cron_times(text: str, after: float, zone: tzinfo) -> Iterator[float]:
    """Yields the matching times after `after`, in order; raises CronError if `text` is invalid.

    Yields nothing if no time within 50 years matches.
    """
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
            timestamp = time.timestamp()
            # If the clock repeats an hour, the library may yield a time of that hour twice.
            if timestamp > after:
                after = timestamp
                yield timestamp
    except (OverflowError, ValueError):  # beyond the last year that datetime supports
        return


def _expand_alias(text: str) -> str:
    if len(text) > CRON_CHARS_MAX:
        raise CronError(f"expected at most {CRON_CHARS_MAX} characters, got {len(text):,}")
    alias = text.strip().lower()
    if not alias.startswith("@"):
        return text
    if alias not in CRON_ALIASES:
        close = find_closest_name(alias, CRON_ALIASES)
        expected = ", ".join(CRON_ALIASES) if close is None else f"'{close}'"
        raise CronError(f"there is no {quote_name(alias)}; expected {expected}, or five fields")
    return CRON_ALIASES[alias]


def _describe_problem(text: str, expression: str, message: str) -> str:
    """Turns the library's message, such as `Bad minute`, into a sentence."""
    parts = expression.split()
    if len(parts) not in {_CRON_FIELDS_MIN, _CRON_FIELDS_MIN + 1}:
        return (
            f"expected five fields, minute hour day month weekday (or six, with seconds in front), "
            f"got {len(parts)} in {quote_name(text)}"
        )
    name = message.removeprefix("Bad ")
    if name not in _CRON_FIELDS:
        return f"{quote_name(text)} can't be read: {message or 'a field is invalid'}"
    number = _CRON_FIELD_NAMES.index(name) - (_CRON_FIELDS_MIN + 1 - len(parts))
    if name == "day-of-month" and parts[number] in _LAST_DAYS:
        return (
            f"the {name} of {quote_name(text)} is '{parts[number]}', but none of its months has "
            "that day"
        )
    return (
        f"the {name} of {quote_name(text)} is {quote_name(parts[number])}; expected "
        f"{_CRON_FIELDS[name]}, "
        "a list (1,2), a range (1-5) or a step (*/2)"
    )


# Time zones by name, such as `Europe/Berlin`, from the machine or from the package tzdata.

CACHED_ZONES_MAX = 100


class UnknownZoneError(ValueError):
    """An unknown time zone. The message suggests a similar name."""


@lru_cache(maxsize=CACHED_ZONES_MAX)
def load_zone(name: str) -> tzinfo:
    """Returns the time zone; raises UnknownZoneError."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UnknownZoneError(
            f"there is no time zone {quote_name(name)}{_suggest_zone(name)}"
        ) from None


def _suggest_zone(name: str) -> str:
    """Returns a hint: a zone with the same city, or a zone with a similar name."""
    from zoneinfo import available_timezones

    known = sorted(available_timezones())
    city = "/" + name.strip().replace(" ", "_").lower()
    same_city = next((zone for zone in known if ("/" + zone).lower().endswith(city)), None)
    suggestion = same_city or find_closest_name(name, known)
    if suggestion is None:
        return "; expected a name such as Europe/Berlin or UTC"
    return f", did you mean {suggestion}?"


def compute_next_ticks(schedule: Schedule, after: float, count: int) -> Sequence[float]:
    """Returns the first `count` ticks after `after`, even if the schedule is paused.

    Returns fewer ticks if the schedule ends earlier. Raises CronError or UnknownZoneError for a
    schedule that `check_schedule` would refuse.
    """
    return list(islice(iterate_ticks(schedule, after), count))


def iterate_ticks(schedule: Schedule, after: float) -> Iterator[float]:
    """Yields the ticks of a schedule after a time, in order."""
    if schedule.interval_s is not None:
        ticks = _iterate_intervals(schedule.interval_s, schedule.starts_at or 0.0, after)
    else:
        # The search starts one second earlier: the first tick may be exactly at `starts_at`.
        start = after if schedule.starts_at is None else max(after, schedule.starts_at - 1.0)
        ticks = iterate_cron_times(schedule.cron or "", start, load_zone(schedule.timezone))
    for tick in ticks:
        if schedule.ends_at is not None and tick > schedule.ends_at:
            return
        if tick > after and (schedule.starts_at is None or tick >= schedule.starts_at):
            yield tick


def _iterate_intervals(interval_s: float, base: float, after: float) -> Iterator[float]:
    """Yields ticks without end, rounded to microseconds so that they are equal in all processes."""
    number = max(0, floor((after - base) / interval_s))
    while True:
        yield round(base + number * interval_s, 6)
        number += 1
