"""Cron expressions: five fields, or six with seconds in front, or a word such as @daily.

A summer-time rule of its zone is followed as Debian's cron does. What names a time of day (neither
minute nor hour begins with a star) happens once a day: in a skipped hour, as soon as that is over;
in a repeated hour, the first time. What goes on all day, and what has seconds, goes by real time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from runnel.core.checks.wording import closest, quoted

CHARS_MAX = 200
WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L for the last",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday), or SUN to SAT",
}
_NAMES = list(_FIELDS)
_FEWEST = 5
_LAST_DAYS = {"30", "31", "30,31", "30-31"}


class CronError(ValueError):
    """The message says which field is wrong, and what it may be."""


def check_cron(text: str) -> None:
    """Raises CronError."""
    next(moments_after(text, 0.0, UTC), None)


def moments_after(text: str, after: float, zone: tzinfo) -> Iterator[float]:
    """In order, later than `after`; none when nothing matches for 50 years. Raises CronError."""
    from cronsim import CronSim, CronSimError

    expression = _expression(text)
    try:
        found = CronSim(expression, datetime.fromtimestamp(after, zone))
    except (CronSimError, AssertionError) as error:
        raise CronError(_problem(text, expression, str(error))) from None
    return _later(found, after)


def _later(found: Iterator[datetime], after: float) -> Iterator[float]:
    try:
        for each in found:
            moment = each.timestamp()
            # In the second pass of a repeated hour, the first one has been.
            if moment > after:
                after = moment
                yield moment
    except (OverflowError, ValueError):  # the end of all calendars
        return


def _expression(text: str) -> str:
    if len(text) > CHARS_MAX:
        raise CronError(f"expected at most {CHARS_MAX} characters, got {len(text):,}")
    word = text.strip().lower()
    if not word.startswith("@"):
        return text
    if word not in WORDS:
        close = closest(word, WORDS)
        meant = ", ".join(WORDS) if close is None else f"'{close}'"
        raise CronError(f"there is no {quoted(word)}; expected {meant}, or five fields")
    return WORDS[word]


def _problem(text: str, expression: str, said: str) -> str:
    """The library says `Bad minute`."""
    parts = expression.split()
    if len(parts) not in {_FEWEST, _FEWEST + 1}:
        return (
            f"expected five fields, minute hour day month weekday (or six, with seconds in front), "
            f"got {len(parts)} in {quoted(text)}"
        )
    name = said.removeprefix("Bad ")
    if name not in _FIELDS:
        return f"{quoted(text)} can't be read: {said or 'a field is none'}"
    number = _NAMES.index(name) - (_FEWEST + 1 - len(parts))
    if name == "day-of-month" and parts[number] in _LAST_DAYS:
        return f"the {name} of {quoted(text)} is '{parts[number]}', which none of its months has"
    return (
        f"the {name} of {quoted(text)} is {quoted(parts[number])}; expected {_FIELDS[name]}, "
        "a list (1,2), a range (1-5) or a step (*/2)"
    )
