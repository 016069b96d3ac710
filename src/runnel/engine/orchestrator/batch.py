"""The contents of one commit, gathered decision by decision and cut to the store's limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runnel.core.codec import encode_events, join_entry
from runnel.core.commands import Command
from runnel.core.effects import (
    ClearTimer,
    DeadLetter,
    Decision,
    DropTask,
    Effect,
    IssueTask,
    PostCommitEffect,
    PutDeadLetter,
    SetTimer,
    TaskMessage,
    TimerKey,
)
from runnel.core.events import (
    AnyEvent,
    ExecutionCreated,
    ExecutionFinished,
    ExecutionStarted,
    MapStarted,
    NodeCancelled,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
)
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.errors import PayloadError
from runnel.ports.store import (
    Commit,
    CommitLimits,
    ExecutionHeader,
    HistoryRecord,
    InboxPosition,
    TimerRecord,
)

# Before one of these a decision may be cut: should the rest never be written, ResumeExecution
# finds it again from the state. Inside such a run it would not: an item that failed and its map
# that did not, a signal that was taken and its node that still waits.
_CUT_POINTS = (NodeQueued, NodeSkipped, NodeWaits, MapStarted)


def encode_parts(events: Sequence[AnyEvent], size_max: int) -> list[bytes]:
    """One part, or several of at most `size_max` bytes; raises PayloadError when that can't be."""
    whole = encode_events(events)
    if len(whole) <= size_max:
        return [whole]
    parts: list[bytes] = []
    for run in map(encode_events, _split_into_steps(events)):
        if len(run) > size_max:
            raise PayloadError(
                f"a single step of the execution takes {len(run):,} bytes to store, at most "
                f"{size_max:,} are allowed"
            )
        if parts and len(parts[-1]) + len(run) < size_max:
            parts[-1] += b"," + run
        else:
            parts.append(run)
    return parts


def _can_cut_before(event: AnyEvent) -> bool:
    if isinstance(event, NodeCancelled):
        return event.item == NO_ITEM  # items are cancelled between their map's failure and its end
    return isinstance(event, _CUT_POINTS)


def _split_into_steps(events: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    start = 0
    for position, event in enumerate(events):
        if position and _can_cut_before(event):
            yield events[start:position]
            start = position
    yield events[start:]


# What an entry has around its events: the version and the time.
FRAME_BYTES = 64

_HEADER_EVENTS = frozenset({ExecutionCreated, ExecutionStarted, ExecutionFinished})


class _EncodedPart(NamedTuple):
    """What one decision, or a piece of it, adds to the history of its aggregate."""

    aggregate_id: str
    encoded: bytes


class CommitBatch:
    """Mutable until it is sealed into commits; one value per key, so that the last word counts."""

    def __init__(self, now: float, limits: CommitLimits) -> None:
        self.now = now
        self.limits = limits
        self.commands = 0
        self.consumed: InboxPosition | None = None
        self.events: dict[str, list[AnyEvent]] = {}
        self.parts: dict[str, list[bytes]] = {}
        self.order: list[str] = []
        """Whose each part is, as they were decided: what a parent does follows from its child."""
        self.headers: list[ExecutionHeader] = []
        self.changed: dict[str, Execution] = {}
        self.graphs: dict[str, Graph] = {}
        """Of all executions that have events."""
        self.closed: dict[str, None] = {}
        self.tasks: dict[TaskToken, TaskMessage] = {}
        self.dropped: list[TaskToken] = []
        self.timers: dict[TimerKey, SetTimer | None] = {}
        self.messages: list[Command] = []
        self.cancels: list[Command] = []
        """What children in this batch were told already; messages too if it has to be cut."""
        self.dead_letters: list[DeadLetter] = []
        self.post_commit_effects: list[PostCommitEffect] = []
        self._size = 0
        self._rows = 0  # at least as many as there will be, of all that `add` is given

    @property
    def is_empty(self) -> bool:
        return not (
            self.consumed
            or self.events
            or self.headers
            or self.changed
            or self.closed
            or self.tasks
            or self.dropped
            or self.timers
            or self.messages
            or self.dead_letters
        )

    @property
    def is_full(self) -> bool:
        """Leaves room for one ordinary decision more: a larger one is cut by `seal`."""
        limits = self.limits
        return (
            self.commands >= limits.commands
            or (self._rows + len(self.timers) + len(self.messages)) * 2 >= limits.writes
            or self._size * 2 >= limits.size_bytes
        )

    def add(self, aggregate_id: str, decision: Decision, execution: Execution | None) -> None:
        """Takes over a decision, except for its Tells: those are the caller's.

        Raises, before anything is changed, for what can't be stored: it is encoded here and not
        later, so that one execution's odd text is not every other's failed commit.
        """
        events, effects = decision.events, decision.effects
        for effect in effects:
            if type(effect) is IssueTask and len(effect.task.config) > self.limits.size_bytes:
                raise _make_too_large_error(effect.task, self.limits)
        if events:
            encoded = encode_parts(events, self.limits.size_bytes - FRAME_BYTES)
            self.events.setdefault(aggregate_id, []).extend(events)
            self.parts.setdefault(aggregate_id, []).extend(encoded)
            for part in encoded:
                self.order.append(aggregate_id)
                self._size += len(part)
            if execution is not None:
                self.graphs[aggregate_id] = execution.graph
                if not _HEADER_EVENTS.isdisjoint(map(type, events)):
                    self.changed[execution.id] = execution
                    self._rows += 1
            self._rows += 1
        for effect in effects:
            if type(effect) is IssueTask:
                self.tasks[effect.task.token] = effect.task
            else:
                self._add_effect(effect)
        self._rows += len(effects)

    def _add_effect(self, effect: Effect) -> None:
        if isinstance(effect, SetTimer):
            self.timers[effect.key] = effect
        elif isinstance(effect, ClearTimer):
            self.timers[effect.key] = None
        elif isinstance(effect, DropTask):
            if self.tasks.pop(effect.token, None) is None:
                self.dropped.append(effect.token)
        elif isinstance(effect, PutDeadLetter):
            self.dead_letters.append(effect.letter)
        elif isinstance(effect, PostCommitEffect):
            self.post_commit_effects.append(effect)

    def seal(self, sequence: int) -> Iterator[Commit]:
        """One commit, or several when a single decision is larger than the store takes at once.

        Only the last one consumes the inbox: after a crash in between, the command is decided
        again on what has been stored, and ResumeExecution completes what was left out.
        """
        limits = self.limits
        whole = self._build_whole_commit(sequence, limits)
        if whole is not None:
            yield whole
            return
        pieces = list(self._split_rows(limits))
        for offset, piece in enumerate(pieces):
            is_last = offset == len(pieces) - 1
            yield self._build_commit(
                sequence + offset, piece, consumed=self.consumed if is_last else None
            )

    def _build_whole_commit(self, sequence: int, limits: CommitLimits) -> Commit | None:
        """The ordinary case, without looking at every row twice; None when it has to be cut."""
        commit = Commit(
            sequence=sequence,
            consumed=self.consumed,
            histories=self._build_histories(self.parts),
            headers=[*map(build_header, self.changed.values()), *self.headers],
            closed=list(self.closed),
            tasks=list(self.tasks.values()),
            dropped=self.dropped,
            timers_set=[
                TimerRecord(key=key, due=timer.due, attempt=timer.attempt)
                for key, timer in self.timers.items()
                if timer is not None
            ],
            timers_cleared=[key for key, timer in self.timers.items() if timer is None],
            messages=self.messages,
            dead_letters=self.dead_letters,
        )
        is_small = commit.writes <= limits.writes and commit.size_bytes <= limits.size_bytes
        return commit if is_small else None

    def _build_commit(
        self, sequence: int, piece: "list[tuple[str, object]]", *, consumed: InboxPosition | None
    ) -> Commit:
        rows: dict[str, list[object]] = {}
        parts: dict[str, list[bytes]] = {}
        for name, row in piece:
            if isinstance(row, _EncodedPart):
                parts.setdefault(row.aggregate_id, []).append(row.encoded)
            else:
                rows.setdefault(name, []).append(row)
        # Any: the rows were sorted into their own fields by `_list_row_groups`.
        fields: dict[str, object] = dict(rows)
        histories = self._build_histories(parts)
        return Commit(sequence=sequence, consumed=consumed, histories=histories, **fields)  # type: ignore[arg-type]

    def _build_histories(self, parts: Mapping[str, Sequence[bytes]]) -> list[HistoryRecord]:
        return [
            HistoryRecord(aggregate_id=aggregate_id, entry=join_entry(self.now, encoded))
            for aggregate_id, encoded in parts.items()
        ]

    def _split_rows(self, limits: CommitLimits) -> "Iterator[list[tuple[str, object]]]":
        piece: list[tuple[str, object]] = []
        size = 0
        for group, group_bytes in self._list_row_groups():
            is_over = len(piece) + len(group) > limits.writes
            if piece and (is_over or size + group_bytes > limits.size_bytes):
                yield piece
                piece, size = [], 0
            piece += group
            size += group_bytes
        yield piece

    def _list_row_groups(self) -> "Iterator[tuple[list[tuple[str, object]], int]]":
        """Rows that belong together, and their bytes.

        In this order, a cut can lose nothing that ResumeExecution would not find again: messages
        go first, because a repeated one is harmless and a lost one is not. Tasks are dropped and
        timers cleared before the history says why: a cancelled task might be started in between,
        and a finished execution is not looked at any more, while a running one gets both again. A
        header goes with the last part of its history, or a finished execution might be listed as
        running for ever. Histories go in the order of the decisions: a parent that ended because
        its child did, of which nothing was written, would never make that child again. That a
        child is cancelled is a message then, too: should only its parent be written, which is not
        looked at any more, nobody else would tell it.
        """
        for message in (*self.cancels, *self.messages):
            yield [("messages", message)], 0
        for token in self.dropped:
            yield [("dropped", token)], 0
        for letter in self.dead_letters:
            yield [("dead_letters", letter)], len(letter.config)
        for key in (key for key, timer in self.timers.items() if timer is None):
            yield [("timers_cleared", key)], 0
        yield from self._list_history_groups()
        unmoved = (execution for id_, execution in self.changed.items() if id_ not in self.parts)
        for header in (*map(build_header, unmoved), *self.headers):
            yield [("headers", header)], 0
        for aggregate_id in self.closed:
            yield [("closed", aggregate_id)], 0
        for key, timer in self.timers.items():
            if timer is not None:
                row = TimerRecord(key=key, due=timer.due, attempt=timer.attempt)
                yield [("timers_set", row)], 0
        for task in self.tasks.values():
            yield [("tasks", task)], len(task.config)

    def _list_history_groups(self) -> "Iterator[tuple[list[tuple[str, object]], int]]":
        unlisted_parts = {
            aggregate_id: list(reversed(parts)) for aggregate_id, parts in self.parts.items()
        }
        for aggregate_id in self.order:
            part = _EncodedPart(aggregate_id, unlisted_parts[aggregate_id].pop())
            group: list[tuple[str, object]] = [("histories", part)]
            if not unlisted_parts[aggregate_id] and aggregate_id in self.changed:
                group.append(("headers", build_header(self.changed[aggregate_id])))
            yield group, len(part.encoded) + FRAME_BYTES


def _make_too_large_error(task: TaskMessage, limits: CommitLimits) -> PayloadError:
    return PayloadError(
        f"the config of node '{task.token.node_id}' has {len(task.config):,} bytes, at most "
        f"{limits.size_bytes:,} are allowed: pass large values as outputs or as input"
    )


def build_header(execution: Execution) -> ExecutionHeader:
    return ExecutionHeader(
        execution_id=execution.id,
        workflow=execution.graph.workflow.name,
        version=execution.version,
        definition=execution.graph.hash,
        state=execution.state,
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
        parent_id=execution.parent.execution_id if execution.parent else None,
        labels=execution.labels,
        error=str(execution.error) if execution.error else None,
        rerun_of=execution.rerun_of,
    )
