"""The stored record of a schedule: its settings, and the progress of its ticks."""

import msgspec

from runnel.core.ids import ExecutionId
from runnel.triggers.trigger import decode_record
from runnel.views.trigger import Schedule

SCHEDULE_KIND = "schedule"
FORMAT = 1


class PlannedTick(msgspec.Struct, frozen=True, array_like=True):
    """A tick and the id of the execution that it starts."""

    tick: float
    execution_id: ExecutionId


class ScheduleProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a schedule.

    - `cursor`: the scheduler has decided about all ticks up to this time.
    - `planned`: ticks that the scheduler decided to fire, and that may not have been fired yet.
    - `cancels`: the execution to cancel before the planned ticks fire.
    - `skipped`: number of ticks not fired because of the overlap rule.
    - `missed`: number of ticks lost in outages, counted up to 500 per outage.
    - `failed`: number of ticks whose execution could not start.
    - `last_error`: why the last tick failed; None after a success.
    """

    cursor: float
    planned: tuple[PlannedTick, ...] = ()
    cancels: ExecutionId | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    failed: int = 0
    last_tick: float | None = None
    last_execution: ExecutionId | None = None
    last_skipped: float | None = None
    last_error: str | None = None

    @property
    def is_under_way(self) -> bool:
        return bool(self.planned)


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored.

    `nonce` distinguishes the schedule from a removed schedule with the same id, so that the
    execution ids of the two schedules differ.
    """

    schedule: Schedule
    nonce: str
    created_at: float
    progress: ScheduleProgress
    format: int = FORMAT


class StoredSchedule(msgspec.Struct, frozen=True):
    """The record of a schedule, and the revision of the record when it was read."""

    record: ScheduleRecord
    revision: int


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ScheduleRecord)


def encode_schedule(record: ScheduleRecord) -> bytes:
    return _encode(record)


def decode_schedule(data: bytes) -> ScheduleRecord:
    """Decodes a record; raises UnreadableFormatError or NewerFormatError."""
    return decode_record(data, _decoder, subject="a schedule", newest_format=FORMAT)
