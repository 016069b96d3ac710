"""Decides what the due ticks of a schedule do, as a new value of the schedule; does nothing itself.

The decision is stored before anything of it is done. So there is one decision for each tick, and
whoever finds one that was not carried out carries it out: ids make sure that it is done once.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from runnel.core.ids import ExecutionId
from runnel.triggers.schedule import KeptSchedule, Overlap, Planned, Progress
from runnel.triggers.ticks import Due, due_ticks, next_ticks

# 72 bits, and a letter that neither ids made of the time nor those made of keys begin with.
_ID_BYTES = 9
_ID_PREFIX = "t"
ERROR_CHARS_MAX = 1_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of a tick that was carried out; `error` is why it could not be."""

    schedule_id: str
    tick: float
    execution_id: ExecutionId | None = None
    error: str | None = None


def tick_id(kept: KeptSchedule, tick: float) -> ExecutionId:
    """The same for whoever fires this tick; another one for another schedule of the same name."""
    microseconds = round(tick * 1_000_000)
    text = f"{kept.schedule.id}\0{kept.nonce}\0{microseconds}"
    digest = hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest()
    return ExecutionId(_ID_PREFIX + digest)


def wakes_at(kept: KeptSchedule) -> float | None:
    """When something is to be done next; 0 when something is under way, None for never."""
    if kept.progress.is_under_way:
        return 0.0
    if kept.schedule.is_paused:
        return None
    return next(iter(next_ticks(kept.schedule, kept.progress.cursor, 1)), None)


def due_of(kept: KeptSchedule, now: float) -> Due:
    """What `planned` is given; nothing of a schedule that is paused."""
    if kept.schedule.is_paused:
        return Due()
    return due_ticks(kept.schedule, cursor=kept.progress.cursor, now=now)


def planned(kept: KeptSchedule, due: Due, now: float, *, is_last_final: bool) -> KeptSchedule:
    """With the ticks decided: which are fired, which skipped, what is cancelled before.

    Without `allow` no two executions may run at a time: of several that are due, the last one is
    fired, and only if the execution before `is_last_final`, or is cancelled.
    """
    progress = kept.progress
    overlap = kept.schedule.overlap
    fired = list(due.ticks)
    if overlap is Overlap.SKIP and not is_last_final:
        fired = []
    elif overlap is not Overlap.ALLOW:
        fired = fired[-1:]
    skipped = [tick for tick in due.ticks if tick not in fired]
    cancels = overlap is Overlap.CANCEL and not is_last_final
    new = tuple(Planned(tick, tick_id(kept, tick)) for tick in fired)
    return _with(
        kept,
        cursor=max(progress.cursor, due.ticks[-1] if due.ticks else now),
        planned=new,
        cancels=progress.last_execution if cancels and new else None,
        skipped=progress.skipped + len(skipped),
        missed=progress.missed + due.missed,
        last_skipped=skipped[-1] if skipped else progress.last_skipped,
        last_execution=new[-1].execution_id if new else progress.last_execution,
    )


def carried_out(kept: KeptSchedule, outcomes: Sequence[Outcome]) -> KeptSchedule:
    """With what became of the ticks that were planned."""
    progress = kept.progress
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    is_right = outcomes[-1].error is None
    return _with(
        kept,
        planned=(),
        cancels=None,
        fired=progress.fired + len(outcomes) - len(errors),
        failed=progress.failed + len(errors),
        last_tick=outcomes[-1].tick,
        last_error=None if is_right else errors[-1][:ERROR_CHARS_MAX],
    )


def _with(kept: KeptSchedule, **changes: object) -> KeptSchedule:
    progress: Progress = msgspec.structs.replace(kept.progress, **changes)
    return msgspec.structs.replace(kept, progress=progress)
