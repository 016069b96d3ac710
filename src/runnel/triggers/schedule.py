"""A schedule as people describe it, and its stored record with the progress of its ticks."""

from enum import StrEnum

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.triggers.trigger import decode_record

SCHEDULE_KIND = "schedule"
FORMAT = 1


class Overlap(StrEnum):
    """What a tick does while the last execution of its schedule is not final."""

    ALLOW = "allow"
    """Starts another one."""
    SKIP = "skip"
    """Nothing; it is counted."""
    CANCEL = "cancel"
    """Cancels that one and starts another."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Runs `workflow` (its newest version, unless one is named) by `cron` or every `interval_s`.

    `input` may hold templates such as `{{ tick.date }}`, see `build_tick_document`. Times are
    seconds since the epoch; intervals are counted from `starts_at`. After an outage, at most
    `catch_up` of the missed ticks are fired: the last ones.
    """

    id: str
    workflow: str
    version: int | None = None
    input: Json = {}
    labels: dict[str, str] = {}
    cron: str | None = None
    interval_s: float | None = None
    timezone: str = "UTC"
    overlap: Overlap = Overlap.ALLOW
    catch_up: int = 1
    is_paused: bool = False
    starts_at: float | None = None
    ends_at: float | None = None
    own_labels: dict[str, str] = {}
    """Labels of Runnel's own. For the command line alone: one of them names the folder that the
    embedded engine imports functions from."""


class PlannedTick(msgspec.Struct, frozen=True, array_like=True):
    """A tick, and the execution that it starts."""

    tick: float
    execution_id: ExecutionId


class ScheduleProgress(msgspec.Struct, frozen=True, kw_only=True):
    """`cursor`: no tick up to here is looked at again. `planned` are those of them that have been
    decided and perhaps not been fired yet, `cancels` is what is to be cancelled before.

    `skipped` by overlap, `missed` for good in an outage (counted up to 500 each time), `failed`
    because they could not be started: `last_error` says why, until one could.
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
    """`nonce` tells it from an earlier one of the same id, whose executions are not its own."""

    schedule: Schedule
    nonce: str
    created_at: float
    progress: ScheduleProgress
    format: int = FORMAT


class StoredSchedule(msgspec.Struct, frozen=True):
    record: ScheduleRecord
    revision: int


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ScheduleRecord)


def encode_schedule(record: ScheduleRecord) -> bytes:
    return _encode(record)


def decode_schedule(data: bytes) -> ScheduleRecord:
    """Raises UnreadableFormatError, NewerFormatError."""
    return decode_record(data, _decoder, subject="a schedule", newest_format=FORMAT)
