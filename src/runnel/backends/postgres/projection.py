"""What the rows of the archive become by a batch of commits."""

import re
from collections.abc import Container, Sequence
from typing import Any

import msgspec

from runnel.backends.postgres.database import SQL, Connection
from runnel.core.codec import Entry, decode_entry
from runnel.core.commands import (
    LIMIT_PREFIX,
    CancelExecution,
    CreateExecution,
    SendSignal,
    StartExecution,
    TakeOver,
)
from runnel.core.effects import DeadLetter
from runnel.core.events import (
    AnyEvent,
    ExecutionClosing,
    ExecutionCreated,
    ExecutionStarted,
    MapStarted,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodesTaken,
    NodeStarted,
    NodeWaits,
    RetryPlanned,
    SignalReceived,
    TaskWasLost,
    Wait,
)
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.states import EXECUTION_FINAL, NODE_FINAL, ExecutionState, NodeState
from runnel.errors import UnreadableFormatError
from runnel.ports.journal import JournalEntry
from runnel.ports.store import Header

# Executions as rows and back.

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


FORCED = "forced"

NodeKey = tuple[str, str, int]
Applied = tuple[str, str, str]

_NODE_EVENTS = (
    NodeQueued,
    NodeStarted,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NodeCancelled,
    RetryPlanned,
    TaskWasLost,
    NodeWaits,
)
_CORE_WAITS = frozenset({Wait.SLEEP, Wait.SIGNAL, Wait.CHILD})
_STATES: dict[type, NodeState] = {
    NodeQueued: NodeState.QUEUED,
    NodeStarted: NodeState.RUNNING,
    NodeCompleted: NodeState.COMPLETED,
    NodeFailed: NodeState.FAILED,
    NodeSkipped: NodeState.SKIPPED,
    NodeCancelled: NodeState.CANCELLED,
    RetryPlanned: NodeState.WAITING,
    TaskWasLost: NodeState.QUEUED,
    NodeWaits: NodeState.WAITING,
    MapStarted: NodeState.RUNNING,
}


class _Everything(Container[str]):
    def __contains__(self, item: object) -> bool:
        return True


EVERYTHING: Container[str] = _Everything()


class NodeRow:
    """What a batch says of one node or item; None where it says nothing."""

    __slots__ = (
        "attempts",
        "error",
        "finished_at",
        "queued_at",
        "started_at",
        "state",
        "worker",
    )

    def __init__(self) -> None:
        self.state = NodeState.PENDING
        self.attempts = 0
        self.worker: str | None = None
        self.queued_at: float | None = None
        self.started_at: float | None = None
        self.finished_at: float | None = None
        self.error: str | None = None

    def columns(self) -> tuple[object, ...]:
        return (
            self.state.value,
            self.attempts,
            self.worker,
            self.queued_at,
            self.started_at,
            self.finished_at,
            self.error,
        )


class Projection:
    """Made from commits of one partition, in order; the last word on each row counts."""

    def __init__(self, partition: int) -> None:
        self.audit_log: list[tuple[object, ...]] = []
        self.headers: dict[str, tuple[object, ...]] = {}
        self.nodes: dict[NodeKey, NodeRow] = {}
        self.letters: list[tuple[object, ...]] = []
        self.closed: dict[str, None] = {}
        self.limit_logs: dict[str, list[tuple[object, ...]]] = {}
        self.applied: dict[Applied, None] = {}
        self.ended: dict[str, None] = {}
        self._partition = partition

    def add(self, commit: JournalEntry, *, of: Container[str] = EVERYTHING) -> None:
        """What it says `of` these aggregates."""
        for ordinal, history in enumerate(commit.histories):
            if history.aggregate_id not in of:
                continue
            place = (self._partition, commit.sequence, ordinal)
            if history.aggregate_id.startswith(LIMIT_PREFIX):
                key = escaped(history.aggregate_id)
                self.limit_logs.setdefault(key, []).append((*place, key, history.entry))
            else:
                self.audit_log.append((*place, history.aggregate_id, history.entry))
                self._follow(history.aggregate_id, history.entry)
        for key in (escaped(each) for each in commit.closed if each in of):
            self.limit_logs.pop(key, None)
            self.closed[key] = None
        for header in commit.headers:
            if header.execution_id in of:
                self._add_header(header)
        for ordinal, letter in enumerate(commit.dead_letters):
            if letter.token.execution_id in of:
                self.letters.append(_letter_row(self._partition, commit.sequence, ordinal, letter))

    def node_rows(self) -> Sequence[tuple[object, ...]]:
        return [(*key, *row.columns()) for key, row in self.nodes.items()]

    def limit_rows(self) -> Sequence[tuple[object, ...]]:
        return [row for rows in self.limit_logs.values() for row in rows]

    def _add_header(self, header: Header) -> None:
        self.headers[header.execution_id] = header_row(self._partition, header)
        if header.state in EXECUTION_FINAL:
            self.ended[header.execution_id] = None

    def _follow(self, execution_id: str, data: bytes) -> None:
        """One that a later version wrote is kept, and shows in the node rows once that one runs."""
        try:
            entry: Entry = decode_entry(data)
        except UnreadableFormatError:
            return
        for event in entry.events:
            if isinstance(event, _NODE_EVENTS):
                self._move(execution_id, event.node, event.item, event, entry.at)
            elif isinstance(event, MapStarted):
                self._move(execution_id, event.node, NO_ITEM, event, entry.at)
            elif isinstance(event, NodesTaken):
                self._take(execution_id, event, entry.at)
            else:
                self._note_applied(execution_id, event)

    def _move(self, execution_id: str, node: str, item: int, event: AnyEvent, at: float) -> None:
        key = (execution_id, storable(node), item)
        row = self.nodes.get(key)
        if row is None:
            row = self.nodes[key] = NodeRow()
        row.state = _STATES[type(event)]
        row.finished_at = at if row.state in NODE_FINAL else None
        row.attempts = max(row.attempts, getattr(event, "attempt", None) or 0)
        if isinstance(event, NodeQueued):
            row.queued_at, row.started_at, row.worker = at, None, None
        elif isinstance(event, MapStarted):
            row.started_at, row.attempts = at, 1
        elif isinstance(event, NodeWaits) and event.wait in _CORE_WAITS:
            row.queued_at, row.started_at, row.worker = at, at, None
        elif isinstance(event, NodeFailed | RetryPlanned):
            row.error = storable(str(event.error))
        elif isinstance(event, TaskWasLost | NodeCancelled):
            row.error = storable(event.reason)
        if isinstance(event, NodeStarted | NodeCompleted | NodeFailed | NodeSkipped):
            row.worker = row.worker or storable(event.worker) or None
            row.started_at = row.started_at or event.started_at
        if row.state is NodeState.COMPLETED:
            row.error = None

    def _take(self, execution_id: str, event: NodesTaken, at: float) -> None:
        """An item has a row once its map has one, as if it had run at once."""
        self.applied[execution_id, TakeOver.__name__, str(event.part)] = None
        for taken in event.taken:
            row = NodeRow()
            row.state = NodeState.COMPLETED if taken.skip is None else NodeState.SKIPPED
            row.finished_at = at
            self.nodes[execution_id, storable(taken.node), taken.item] = row

    def _note_applied(self, execution_id: str, event: AnyEvent) -> None:
        if isinstance(event, ExecutionCreated):
            self.applied[execution_id, CreateExecution.__name__, ""] = None
        elif isinstance(event, ExecutionStarted):
            self.applied[execution_id, StartExecution.__name__, ""] = None
        elif isinstance(event, ExecutionClosing):
            self.applied[execution_id, CancelExecution.__name__, ""] = None
            if event.is_abrupt:
                self.applied[execution_id, CancelExecution.__name__, FORCED] = None
        elif isinstance(event, SignalReceived):
            self.applied[execution_id, SendSignal.__name__, storable(event.signal_id)] = None


def _letter_row(
    partition: int, sequence: int, ordinal: int, letter: DeadLetter
) -> tuple[object, ...]:
    return (
        partition,
        sequence,
        ordinal,
        letter.token.execution_id,
        storable(letter.queue),
        letter.rejected_at,
        msgspec.json.encode(letter),
    )


# Writes what a batch of commits became, inside a transaction.

_LOG_COLUMNS = ("partition", "sequence", "ordinal", "aggregate_id", "entry")
_LETTER_COLUMNS = (
    "partition",
    "sequence",
    "ordinal",
    "execution_id",
    "queue",
    "rejected_at",
    "body",
)


async def write_batch(connection: Connection, batch: Projection) -> None:
    if batch.audit_log:
        await connection.copy_records_to_table(
            "audit_log", records=batch.audit_log, columns=_LOG_COLUMNS
        )
    if batch.headers:
        await write_headers(connection, list(batch.headers.values()))
    if batch.nodes:
        await connection.copy_records_to_table("staged_nodes", records=batch.node_rows())
        await connection.execute(SQL["put_nodes"])
    if batch.closed:
        await connection.execute(SQL["close_limits"], list(batch.closed))
    if batch.limit_logs:
        await connection.copy_records_to_table(
            "limit_log", records=batch.limit_rows(), columns=_LOG_COLUMNS
        )
    if batch.letters:
        await connection.copy_records_to_table(
            "dead_letters", records=batch.letters, columns=_LETTER_COLUMNS
        )
    await write_applied(connection, batch)


async def write_headers(connection: Connection, headers: Sequence[Sequence[object]]) -> None:
    await connection.copy_records_to_table("staged_headers", records=headers)
    await connection.execute(SQL["put_headers"])


async def write_applied(connection: Connection, batch: Projection) -> None:
    """What callers asked for and has had its effect."""
    if batch.applied:
        await connection.execute(SQL["apply_commands"], *columns(list(batch.applied), 3))
    if batch.ended:
        await connection.execute(SQL["apply_all_commands"], list(batch.ended))


async def clear_staged(connection: Connection) -> None:
    """For another batch in the same transaction."""
    await connection.execute(SQL["clear_staged_headers"])
    await connection.execute(SQL["clear_staged_nodes"])
