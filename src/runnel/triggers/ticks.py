"""The ticks of a schedule: which come next, and which are due."""

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from math import floor

import msgspec

from runnel.triggers.cron import moments_after
from runnel.triggers.schedule import Schedule
from runnel.triggers.zones import zone_of

# A tick that is later than this was missed: nobody was there, or the store was away.
MISSED_AFTER_S = 60.0
CATCH_UP_MAX = 100
# Ticks are looked at one by one up to here, 20 ms of them; a minute has 60 at most.
COUNTED_MAX = 500
LATEST_MAX = CATCH_UP_MAX + 61


class Due(msgspec.Struct, frozen=True):
    """`ticks` are to be fired, in order; `missed` are not, because they are too many."""

    ticks: tuple[float, ...] = ()
    missed: int = 0


def next_ticks(schedule: Schedule, after: float, n: int) -> Sequence[float]:
    """The first `n` that are later than `after`, paused or not; fewer when it ends before.

    Raises CronError or UnknownZoneError for a schedule that was never checked.
    """
    return list(islice(_ticks(schedule, after), n))


def due_ticks(schedule: Schedule, *, cursor: float, now: float) -> Due:
    """Those behind the cursor and up to `now`.

    What is late by more than a minute was missed, and of that the last `catch_up` are due. All
    else is due, however many ticks a second has.
    """
    behind = takewhile(lambda tick: tick <= now, _ticks(schedule, cursor))
    found = list(islice(behind, COUNTED_MAX + 1))
    count = len(found)
    if count > COUNTED_MAX:
        found = _latest(schedule, cursor, now)
    late = [tick for tick in found if tick < now - MISSED_AFTER_S]
    fresh = found[len(late) :]
    kept = late[max(0, len(late) - schedule.catch_up) :]
    return Due((*kept, *fresh), count - len(kept) - len(fresh))


def _latest(schedule: Schedule, cursor: float, now: float) -> list[float]:
    """The last ones up to `now`, at least as many as may be due: looked for backwards."""
    back_s = float(LATEST_MAX)
    while True:
        after = max(cursor, now - back_s)
        found = list(takewhile(lambda tick: tick <= now, _ticks(schedule, after)))
        if len(found) >= LATEST_MAX or after == cursor:
            return found[-LATEST_MAX:]
        back_s *= 4


def _ticks(schedule: Schedule, after: float) -> Iterator[float]:
    if schedule.interval_s is not None:
        found = _intervals(schedule.interval_s, schedule.starts_at or 0.0, after)
    else:
        # A second before, because the first tick may be the very moment of the start.
        start = after if schedule.starts_at is None else max(after, schedule.starts_at - 1.0)
        found = moments_after(schedule.cron or "", start, zone_of(schedule.timezone))
    for tick in found:
        if schedule.ends_at is not None and tick > schedule.ends_at:
            return
        if tick > after and (schedule.starts_at is None or tick >= schedule.starts_at):
            yield tick


def _intervals(interval_s: float, base: float, after: float) -> Iterator[float]:
    """To the microsecond, and without end: so that every process means the same moments."""
    number = max(0, floor((after - base) / interval_s))
    while True:
        yield round(base + number * interval_s, 6)
        number += 1
