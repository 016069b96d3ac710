"""Decides what the due ticks of a schedule do, as a new value of the schedule; does nothing itself.

The decision is stored before anything of it is done. So there is one decision for each tick, and
whoever finds one that was not carried out carries it out: ids make sure that it is done once.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from runnel.core.ids import ExecutionId
from runnel.triggers.cron import DueTicks, compute_due_ticks, compute_next_ticks
from runnel.triggers.schedule import PlannedTick, ScheduleProgress, ScheduleRecord
from runnel.views.trigger import Overlap

# 72 bits, and a letter that neither ids made of the time nor those made of keys begin with.
_ID_BYTES = 9
_ID_PREFIX = "t"
ERROR_CHARS_MAX = 1_000


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """Of a tick that was carried out; `error` is why it could not be."""

    schedule_id: str
    tick: float
    execution_id: ExecutionId | None = None
    error: str | None = None


def derive_tick_execution_id(record: ScheduleRecord, tick: float) -> ExecutionId:
    """The same for whoever fires this tick; another one for another schedule of the same name."""
    microseconds = round(tick * 1_000_000)
    text = f"{record.schedule.id}\0{record.nonce}\0{microseconds}"
    digest = hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest()
    return ExecutionId(_ID_PREFIX + digest)


def compute_wake_time(record: ScheduleRecord) -> float | None:
    """When something is to be done next; 0 when something is under way, None for never."""
    if record.progress.is_under_way:
        return 0.0
    if record.schedule.is_paused:
        return None
    return next(iter(compute_next_ticks(record.schedule, record.progress.cursor, 1)), None)


def find_due_ticks(record: ScheduleRecord, now: float) -> DueTicks:
    """What `planned` is given; nothing of a schedule that is paused."""
    if record.schedule.is_paused:
        return DueTicks()
    return compute_due_ticks(record.schedule, cursor=record.progress.cursor, now=now)


def plan_ticks(
    record: ScheduleRecord, due: DueTicks, now: float, *, is_last_final: bool
) -> ScheduleRecord:
    """With the ticks decided: which are fired, which skipped, what is cancelled before.

    Without `allow` no two executions may run at a time: of several that are due, the last one is
    fired, and only if the execution before `is_last_final`, or is cancelled.
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
    new = tuple(PlannedTick(tick, derive_tick_execution_id(record, tick)) for tick in fired)
    return _replace_progress(
        record,
        cursor=max(progress.cursor, due.ticks[-1] if due.ticks else now),
        planned=new,
        cancels=progress.last_execution if cancels and new else None,
        skipped=progress.skipped + len(skipped),
        missed=progress.missed + due.missed,
        last_skipped=skipped[-1] if skipped else progress.last_skipped,
        last_execution=new[-1].execution_id if new else progress.last_execution,
    )


def record_results(record: ScheduleRecord, results: Sequence[TickResult]) -> ScheduleRecord:
    """With what became of the ticks that were planned."""
    progress = record.progress
    errors = [outcome.error for outcome in results if outcome.error is not None]
    is_right = results[-1].error is None
    return _replace_progress(
        record,
        planned=(),
        cancels=None,
        fired=progress.fired + len(results) - len(errors),
        failed=progress.failed + len(errors),
        last_tick=results[-1].tick,
        last_error=None if is_right else errors[-1][:ERROR_CHARS_MAX],
    )


def _replace_progress(record: ScheduleRecord, **changes: object) -> ScheduleRecord:
    progress: ScheduleProgress = msgspec.structs.replace(record.progress, **changes)
    return msgspec.structs.replace(record, progress=progress)
