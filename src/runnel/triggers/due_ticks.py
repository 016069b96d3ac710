"""Decides which due ticks of a schedule are fired. A decision is a new record. Does no I/O.

The scheduler stores the decision before it acts on it, so each tick has one decision. Any process
can carry out a stored decision; derived execution ids ensure that each execution starts once.
"""

from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from runnel.core.ids import ExecutionId
from runnel.triggers.cron import compute_next_ticks, iterate_ticks
from runnel.triggers.schedule import PlannedTick, ScheduleProgress, ScheduleRecord
from runnel.triggers.trigger import derive_execution_id
from runnel.views.trigger import Overlap, Schedule

# No other kind of execution id begins with this letter.
_ID_PREFIX = "t"
ERROR_CHARS_MAX = 1_000
# A tick that is late by more than this time was missed: no process ran, or the store was down.
MISSED_AFTER_S = 60.0
CATCH_UP_MAX = 100
# Up to this number, ticks are computed one by one, which takes 20 ms.
COUNTED_TICKS_MAX = 500
# More ticks are never due: those to catch up, and at most 61 ticks within a minute.
LATEST_TICKS_MAX = CATCH_UP_MAX + 61


class DueTicks(msgspec.Struct, frozen=True):
    """The ticks to fire, in order, and the number of missed ticks that are not fired."""

    ticks: tuple[float, ...] = ()
    missed: int = 0


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of firing a tick: the execution, or the reason why it could not start."""

    schedule_id: str
    tick: float
    execution_id: ExecutionId | None = None
    error: str | None = None


def derive_tick_execution_id(record: ScheduleRecord, tick: float) -> ExecutionId:
    """Returns the execution id of a tick, which is the same in every process.

    A new schedule with the id of a removed schedule gets different execution ids.
    """
    microseconds = round(tick * 1_000_000)
    return derive_execution_id(_ID_PREFIX, record.schedule.id, record.nonce, str(microseconds))


def compute_wake_time(record: ScheduleRecord) -> float | None:
    """Returns the time of the next action: 0 if planned ticks are unfinished, None for never."""
    if record.progress.is_under_way:
        return 0.0
    if record.schedule.is_paused:
        return None
    return next(iter(compute_next_ticks(record.schedule, record.progress.cursor, 1)), None)


def find_due_ticks(record: ScheduleRecord, now: float) -> DueTicks:
    """Returns the ticks that are due; no ticks for a paused schedule."""
    if record.schedule.is_paused:
        return DueTicks()
    return compute_due_ticks(record.schedule, cursor=record.progress.cursor, now=now)


def compute_due_ticks(schedule: Schedule, *, cursor: float, now: float) -> DueTicks:
    """Returns the ticks after the cursor and up to `now` that are due.

    Ticks that are late by more than a minute are missed; only the last `catch_up` of them are due.
    All other ticks are due, however many there are per second.
    """
    pending = takewhile(lambda tick: tick <= now, iterate_ticks(schedule, cursor))
    ticks = list(islice(pending, COUNTED_TICKS_MAX + 1))
    count = len(ticks)
    if count > COUNTED_TICKS_MAX:
        ticks = _find_latest_ticks(schedule, cursor, now)
    late = [tick for tick in ticks if tick < now - MISSED_AFTER_S]
    fresh = ticks[len(late) :]
    caught_up = late[max(0, len(late) - schedule.catch_up) :]
    return DueTicks((*caught_up, *fresh), count - len(caught_up) - len(fresh))


def _find_latest_ticks(schedule: Schedule, cursor: float, now: float) -> list[float]:
    """Returns the last ticks up to `now`, at least as many as can be due; searches back in time."""
    back_s = float(LATEST_TICKS_MAX)
    while True:
        after = max(cursor, now - back_s)
        ticks = list(takewhile(lambda tick: tick <= now, iterate_ticks(schedule, after)))
        if len(ticks) >= LATEST_TICKS_MAX or after == cursor:
            return ticks[-LATEST_TICKS_MAX:]
        back_s *= 4


def plan_ticks(
    record: ScheduleRecord, due: DueTicks, now: float, *, is_last_final: bool
) -> ScheduleRecord:
    """Returns the record with a decision: ticks to fire, ticks to skip, an execution to cancel.

    If `overlap` is `allow`, all due ticks are fired. Otherwise only one execution may run at a
    time, so only the last due tick is fired. With `skip`, it is fired only if the previous
    execution has finished (`is_last_final`). With `cancel`, the previous execution is cancelled.
    """
    progress = record.progress
    overlap = record.schedule.overlap
    fired = list(due.ticks)
    if overlap is Overlap.SKIP and not is_last_final:
        fired = []
    elif overlap is not Overlap.ALLOW:
        fired = fired[-1:]
    skipped = [tick for tick in due.ticks if tick not in fired]
    cancels = overlap is Overlap.CANCEL and not is_last_final
    planned = tuple(PlannedTick(tick, derive_tick_execution_id(record, tick)) for tick in fired)
    return _replace_progress(
        record,
        cursor=max(progress.cursor, due.ticks[-1] if due.ticks else now),
        planned=planned,
        cancels=progress.last_execution if cancels and planned else None,
        skipped=progress.skipped + len(skipped),
        missed=progress.missed + due.missed,
        last_skipped=skipped[-1] if skipped else progress.last_skipped,
        last_execution=planned[-1].execution_id if planned else progress.last_execution,
    )


def record_results(record: ScheduleRecord, results: Sequence[TickResult]) -> ScheduleRecord:
    """Returns the record with the results of the planned ticks."""
    progress = record.progress
    errors = [result.error for result in results if result.error is not None]
    last_error = results[-1].error
    return _replace_progress(
        record,
        planned=(),
        cancels=None,
        fired=progress.fired + len(results) - len(errors),
        failed=progress.failed + len(errors),
        last_tick=results[-1].tick,
        last_error=None if last_error is None else last_error[:ERROR_CHARS_MAX],
    )


def _replace_progress(record: ScheduleRecord, **changes: object) -> ScheduleRecord:
    progress: ScheduleProgress = msgspec.structs.replace(record.progress, **changes)
    return msgspec.structs.replace(record, progress=progress)
