"""What the rows of the archive become by a batch of commits."""

from collections.abc import Container, Sequence

import msgspec

from runnel.backends.postgres.rows import escaped, header_row, storable
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
from runnel.core.ids import NO_ITEM
from runnel.core.states import EXECUTION_FINAL, NODE_FINAL, NodeState
from runnel.errors import UnreadableFormatError
from runnel.ports.journal import JournalEntry
from runnel.ports.store import Header

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
