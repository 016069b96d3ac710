"""Executions as rows and back."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.store import Header

_labels = msgspec.json.Decoder(dict[str, str])
_encode = msgspec.json.encode

HEADER_COLUMNS = 13

_ESCAPE = re.compile(r"\\[\\0]")


def storable(text: str) -> str:
    """PostgreSQL takes any text but one with a zero character; the audit log has it as it was."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def escaped(text: str) -> str:
    """For what must be the same text again: a zero character is written as two others."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\0" if found[0] == "\\0" else "\\", text)


def header_row(partition: int, header: Header) -> tuple[object, ...]:
    return (
        header.execution_id,
        partition,
        storable(header.workflow),
        header.version,
        header.definition,
        header.state.value,
        header.created_at,
        header.started_at,
        header.finished_at,
        header.parent_id,
        _encode(header.labels).decode(),
        None if header.error is None else storable(header.error),
        header.rerun_of,
    )


def columns(rows: Sequence[Sequence[object]], count: int) -> list[list[object]]:
    """As `unnest` takes them; a list for each column also when there is no row."""
    return [[row[number] for row in rows] for number in range(count)]


def header_of(row: Sequence[Any]) -> Header:
    return Header(
        execution_id=ExecutionId(row[0]),
        workflow=row[1],
        version=row[2],
        definition=row[3],
        state=ExecutionState(row[4]),
        created_at=row[5],
        started_at=row[6],
        finished_at=row[7],
        parent_id=None if row[8] is None else ExecutionId(row[8]),
        labels=_labels.decode(row[9]),
        error=row[10],
        rerun_of=None if row[11] is None else ExecutionId(row[11]),
    )
