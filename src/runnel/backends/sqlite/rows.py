"""Values as rows, and back."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from runnel.core.effects import DeadLetter, TimerKey, TimerKind
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.states import ExecutionState
from runnel.ports.store import Header, TimerSet

Column: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Column, ...]

_encoder = msgspec.json.Encoder()
_labels = msgspec.json.Decoder(dict[str, str])
_letter = msgspec.json.Decoder(DeadLetter)


def header_row(partition: int, header: Header) -> Row:
    return (
        header.execution_id,
        partition,
        header.workflow,
        header.version,
        header.definition,
        header.state.value,
        header.created_at,
        header.started_at,
        header.finished_at,
        header.parent_id,
        _encoder.encode(header.labels).decode() if header.labels else "{}",
        header.error,
        header.rerun_of,
    )


def header_of(row: Sequence[Any]) -> Header:
    """Column by column: `msgspec.convert` of a dict took 2.8 µs, this takes 1.0."""
    return Header(
        execution_id=ExecutionId(row[0]),
        workflow=row[1],
        version=row[2],
        definition=row[3],
        state=ExecutionState(row[4]),
        created_at=row[5],
        started_at=row[6],
        finished_at=row[7],
        parent_id=row[8],
        labels={} if row[9] == "{}" else _labels.decode(row[9]),
        error=row[10],
        rerun_of=row[11],
    )


def timer_row(partition: int, timer: TimerSet) -> Row:
    return (*timer_key_row(partition, timer.key), timer.due, timer.attempt)


def timer_key_row(partition: int, key: TimerKey) -> Row:
    return (partition, key.execution_id, key.node_id, key.item, key.kind.value)


def timer_of(row: tuple[str, str, int, str, float, int]) -> TimerSet:
    execution_id, node_id, item, kind, due, attempt = row
    key = TimerKey(ExecutionId(execution_id), NodeId(node_id), item, TimerKind(kind))
    return TimerSet(key=key, due=due, attempt=attempt)


def letter_row(letter: DeadLetter) -> Row:
    return (letter.rejected_at, _encoder.encode(letter))


def letter_of(body: bytes) -> DeadLetter:
    return _letter.decode(body)
