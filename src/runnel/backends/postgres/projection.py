"""Computes the rows that a batch of commits changes in the archive, and writes them."""

import re
from collections.abc import Container, Sequence

import msgspec
from msgspec import structs

from runnel.backends import row_codec
from runnel.backends.postgres.database import SQL, Connection
from runnel.core.codec import HistoryEntry, decode_entry
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
from runnel.core.ids import NO_ITEM
from runnel.core.states import (
    FINAL_EXECUTION_STATES,
    FINAL_NODE_STATES,
    NodeState,
)
from runnel.errors import UnreadableFormatError
from runnel.ports.journal import JournalEntry
from runnel.ports.store import ExecutionHeader

# -- converts text and headers to the form that PostgreSQL accepts ------------------------------


HEADER_COLUMNS = 13

_ESCAPE_PATTERN = re.compile(r"\\[\\0]")


def replace_nul(text: str) -> str:
    """Replaces NUL characters, because PostgreSQL can't store them in text.

    The audit log keeps the original text.
    """
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def escape_nul(text: str) -> str:
    """Escapes NUL characters reversibly, for text that must be read back unchanged."""
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def unescape_nul(text: str) -> str:
    return _ESCAPE_PATTERN.sub(lambda match: "\0" if match[0] == "\\0" else "\\", text)


def build_header_row(partition: int, header: ExecutionHeader) -> tuple[object, ...]:
    return row_codec.build_header_row(partition, _replace_nul_in_header(header))


def _replace_nul_in_header(header: ExecutionHeader) -> ExecutionHeader:
    error = header.error or ""
    if "\0" not in header.workflow and "\0" not in error:
        return header
    workflow, error = replace_nul(header.workflow), replace_nul(error)
    return structs.replace(header, workflow=workflow, error=header.error and error)


def transpose_rows(rows: Sequence[Sequence[object]], count: int) -> list[list[object]]:
    """Turns rows into columns for `unnest`; returns a list per column even if there are no rows."""
    return [[row[number] for row in rows] for number in range(count)]


FORCED_KEY = "forced"

NodeKey = tuple[str, str, int]
AppliedKey = tuple[str, str, str]

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


class _AllAggregates(Container[str]):
    def __contains__(self, item: object) -> bool:
        return True


ALL_AGGREGATES: Container[str] = _AllAggregates()


class NodeRow:
    """The changes of a batch to one node or item; None for a column that does not change."""

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

    def to_columns(self) -> tuple[object, ...]:
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
    """The rows that commits of one partition change.

    A later commit overwrites the rows of earlier ones.
    """

    def __init__(self, partition: int) -> None:
        self.audit_log: list[tuple[object, ...]] = []
        self.headers: dict[str, tuple[object, ...]] = {}
        self.nodes: dict[NodeKey, NodeRow] = {}
        self.letters: list[tuple[object, ...]] = []
        self.closed: dict[str, None] = {}
        self.limit_logs: dict[str, list[tuple[object, ...]]] = {}
        self.applied: dict[AppliedKey, None] = {}
        self.ended: dict[str, None] = {}
        self._partition = partition

    def add(self, commit: JournalEntry, *, aggregate_ids: Container[str] = ALL_AGGREGATES) -> None:
        """Adds those changes of the commit that concern the given aggregates."""
        for ordinal, history in enumerate(commit.histories):
            if history.aggregate_id not in aggregate_ids:
                continue
            row_key = (self._partition, commit.sequence, ordinal)
            if history.aggregate_id.startswith(LIMIT_PREFIX):
                key = escape_nul(history.aggregate_id)
                self.limit_logs.setdefault(key, []).append((*row_key, key, history.entry))
            else:
                self.audit_log.append((*row_key, history.aggregate_id, history.entry))
                self._apply_entry(history.aggregate_id, history.entry)
        for key in (
            escape_nul(aggregate_id)
            for aggregate_id in commit.closed
            if aggregate_id in aggregate_ids
        ):
            self.limit_logs.pop(key, None)
            self.closed[key] = None
        for header in commit.headers:
            if header.execution_id in aggregate_ids:
                self._add_header(header)
        for ordinal, letter in enumerate(commit.dead_letters):
            if letter.token.execution_id in aggregate_ids:
                self.letters.append(
                    _build_letter_row(self._partition, commit.sequence, ordinal, letter)
                )

    def node_rows(self) -> Sequence[tuple[object, ...]]:
        return [(*key, *row.to_columns()) for key, row in self.nodes.items()]

    def limit_rows(self) -> Sequence[tuple[object, ...]]:
        return [row for rows in self.limit_logs.values() for row in rows]

    def _add_header(self, header: ExecutionHeader) -> None:
        self.headers[header.execution_id] = build_header_row(self._partition, header)
        if header.state in FINAL_EXECUTION_STATES:
            self.ended[header.execution_id] = None

    def _apply_entry(self, execution_id: str, data: bytes) -> None:
        """Applies the events of one history entry.

        Skips an entry that a later Runnel version wrote. The audit log keeps that entry, and the
        node rows show its changes after an upgrade.
        """
        try:
            entry: HistoryEntry = decode_entry(data)
        except UnreadableFormatError:
            return
        for event in entry.events:
            if isinstance(event, _NODE_EVENTS):
                self._apply_node_event(execution_id, event.node, event.item, event, entry.at)
            elif isinstance(event, MapStarted):
                self._apply_node_event(execution_id, event.node, NO_ITEM, event, entry.at)
            elif isinstance(event, NodesTaken):
                self._apply_taken_nodes(execution_id, event, entry.at)
            else:
                self._record_applied(execution_id, event)

    def _apply_node_event(
        self, execution_id: str, node: str, item: int, event: AnyEvent, at: float
    ) -> None:
        key = (execution_id, replace_nul(node), item)
        row = self.nodes.get(key)
        if row is None:
            row = self.nodes[key] = NodeRow()
        row.state = _STATES[type(event)]
        row.finished_at = at if row.state in FINAL_NODE_STATES else None
        row.attempts = max(row.attempts, getattr(event, "attempt", None) or 0)
        if isinstance(event, NodeQueued):
            row.queued_at, row.started_at, row.worker = at, None, None
        elif isinstance(event, MapStarted):
            row.started_at, row.attempts = at, 1
        elif isinstance(event, NodeWaits) and event.wait in _CORE_WAITS:
            row.queued_at, row.started_at, row.worker = at, at, None
        elif isinstance(event, NodeFailed | RetryPlanned):
            row.error = replace_nul(str(event.error))
        elif isinstance(event, TaskWasLost | NodeCancelled):
            row.error = replace_nul(event.reason)
        if isinstance(event, NodeStarted | NodeCompleted | NodeFailed | NodeSkipped):
            row.worker = row.worker or replace_nul(event.worker) or None
            row.started_at = row.started_at or event.started_at
        if row.state is NodeState.COMPLETED:
            row.error = None

    def _apply_taken_nodes(self, execution_id: str, event: NodesTaken, at: float) -> None:
        """Adds rows for the nodes whose results a rerun reuses.

        Each item of a reused map gets a row together with the map, as if the item had completed at
        once.
        """
        self.applied[execution_id, TakeOver.__name__, str(event.part)] = None
        for reused in event.taken:
            row = NodeRow()
            row.state = NodeState.COMPLETED if reused.skip is None else NodeState.SKIPPED
            row.finished_at = at
            self.nodes[execution_id, replace_nul(reused.node), reused.item] = row

    def _record_applied(self, execution_id: str, event: AnyEvent) -> None:
        if isinstance(event, ExecutionCreated):
            self.applied[execution_id, CreateExecution.__name__, ""] = None
        elif isinstance(event, ExecutionStarted):
            self.applied[execution_id, StartExecution.__name__, ""] = None
        elif isinstance(event, ExecutionClosing):
            self.applied[execution_id, CancelExecution.__name__, ""] = None
            if event.is_abrupt:
                self.applied[execution_id, CancelExecution.__name__, FORCED_KEY] = None
        elif isinstance(event, SignalReceived):
            self.applied[execution_id, SendSignal.__name__, replace_nul(event.signal_id)] = None


def _build_letter_row(
    partition: int, sequence: int, ordinal: int, letter: DeadLetter
) -> tuple[object, ...]:
    return (
        partition,
        sequence,
        ordinal,
        letter.token.execution_id,
        replace_nul(letter.queue),
        letter.rejected_at,
        msgspec.json.encode(letter),
    )


# -- writes rows inside a transaction -----------------------------------------------------------

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
        ids = list({str(row[_LETTER_COLUMNS.index("execution_id")]) for row in batch.letters})
        await connection.execute(SQL["delete_replaced_letters"], ids)
    await write_applied(connection, batch)


async def write_headers(connection: Connection, headers: Sequence[Sequence[object]]) -> None:
    await connection.copy_records_to_table("staged_headers", records=headers)
    await connection.execute(SQL["put_headers"])


async def write_applied(connection: Connection, batch: Projection) -> None:
    """Marks the commands that have taken effect as applied."""
    if batch.applied:
        await connection.execute(SQL["apply_commands"], *transpose_rows(list(batch.applied), 3))
    if batch.ended:
        await connection.execute(SQL["apply_all_commands"], list(batch.ended))


async def clear_staged(connection: Connection) -> None:
    """Empties the staging tables for another batch in the same transaction."""
    await connection.execute(SQL["clear_staged_headers"])
    await connection.execute(SQL["clear_staged_nodes"])
