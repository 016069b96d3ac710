"""The stored record of a schedule: what was given, and what has become of it."""

from typing import TypeVar

import msgspec

from runnel.core.ids import ExecutionId
from runnel.errors import NewerFormatError, UnreadableFormatError
from runnel.views.trigger import Schedule

# Records carry the version of their form: what a later one wrote is left alone.

T = TypeVar("T")


class _RecordFormat(msgspec.Struct):
    format: int


_format_decoder = msgspec.json.Decoder(_RecordFormat)


def decode_record(
    data: bytes, decoder: msgspec.json.Decoder[T], *, subject: str, newest_format: int
) -> T:
    """Raises UnreadableFormatError, and NewerFormatError above version `newest_format`."""
    try:
        found = _format_decoder.decode(data).format
        if found > newest_format:
            raise NewerFormatError(
                f"{subject} has format {found}, this Runnel knows up to {newest_format}: upgrade "
                f"Runnel"
            )
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableFormatError(f"{subject} can't be read: {error}") from error


SCHEDULE_KIND = "schedule"
FORMAT = 1


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
