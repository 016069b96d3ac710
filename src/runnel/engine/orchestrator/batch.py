"""Collects the decisions of one batch and turns them into commits within the store's limits."""

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
    StopTask,
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

# The events before which a decision may be split into two commits. If the second commit is never
# written, ResumeExecution derives its events again from the state. After a split at any other
# event, ResumeExecution could not derive the missing events. For example, an item would have failed
# but its map would not have, or a signal would be consumed while its node still waits.
_CUT_POINTS = (NodeQueued, NodeSkipped, NodeWaits, MapStarted)


def encode_parts(events: Sequence[AnyEvent], size_max: int) -> list[bytes]:
    """Encodes the events as one part, or as several of at most `size_max` bytes.

    Raises PayloadError if the events between two possible cuts exceed `size_max`.
    """
    encoded = encode_events(events)
    if len(encoded) <= size_max:
        return [encoded]
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
        return event.item == NO_ITEM  # items are cancelled while their map fails
    return isinstance(event, _CUT_POINTS)


def _split_into_steps(events: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    start = 0
    for position, event in enumerate(events):
        if position and _can_cut_before(event):
            yield events[start:position]
            start = position
    yield events[start:]


# The bytes of an entry besides its events: the version and the time.
FRAME_BYTES = 64

_HEADER_EVENTS = frozenset({ExecutionCreated, ExecutionStarted, ExecutionFinished})


class _EncodedPart(NamedTuple):
    """All or some of the events that one decision adds to the history of its aggregate, encoded."""

    aggregate_id: str
    encoded: bytes


class CommitBatch:
    """Collects decisions until `seal` turns them into commits.

    For each timer key, task token and execution, the last value counts.
    """

    def __init__(self, now: float, limits: CommitLimits) -> None:
        self.now = now
        self.limits = limits
        self.commands = 0
        self.consumed: InboxPosition | None = None
        self.events: dict[str, list[AnyEvent]] = {}
        self.parts: dict[str, list[bytes]] = {}
        self.order: list[str] = []
        """The aggregate of each part, in the order of the decisions.

        A parent's events follow its child's events.
        """
        self.headers: list[ExecutionHeader] = []
        self.changed: dict[str, Execution] = {}
        self.graphs: dict[str, Graph] = {}
        """The graphs of all executions that have events."""
        self.closed: dict[str, None] = {}
        self.tasks: dict[TaskToken, TaskMessage] = {}
        self.dropped: list[TaskToken] = []
        self.stopped: list[TaskToken] = []
        self.never_issued: list[TaskToken] = []
        """Tasks that this batch both issued and stopped, so that no store reports their end."""
        self.timers: dict[TimerKey, SetTimer | None] = {}
        self.messages: list[Command] = []
        self.cancels: list[Command] = []
        """Cancellations that children in this batch already handled.

        These cancellations become messages if the batch is split into several commits.
        """
        self.dead_letters: list[DeadLetter] = []
        self.post_commit_effects: list[PostCommitEffect] = []
        self._size = 0
        self._rows = 0  # an upper bound of the rows that `add` has caused

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
            or self.stopped
            or self.timers
            or self.messages
            or self.dead_letters
        )

    @property
    def is_full(self) -> bool:
        """Whether the batch has no room left for an ordinary decision.

        `seal` splits a batch that is too large.
        """
        limits = self.limits
        return (
            self.commands >= limits.commands
            or (self._rows + len(self.timers) + len(self.messages)) * 2 >= limits.writes
            or self._size * 2 >= limits.size_bytes
        )

    def add(self, aggregate_id: str, decision: Decision, execution: Execution | None) -> None:
        """Adds a decision, except for its SendCommand effects, which the caller handles.

        Raises an error, before it changes the batch, if the decision can't be stored. Events are
        encoded here and not in `seal`, so that an invalid text in one execution does not fail the
        commit of all others.
        """
        events, effects = decision.events, decision.effects
        for effect in effects:
            if type(effect) is IssueTask and len(effect.task.config) > self.limits.size_bytes:
                raise _make_too_large_error(effect.task, self.limits)
        if events:
            encoded = encode_parts(events, self.limits.size_bytes - FRAME_BYTES)
            earlier = self.events.get(aggregate_id)
            if earlier is None:
                self.events[aggregate_id] = list(events)
                self.parts[aggregate_id] = list(encoded)
            else:
                earlier.extend(events)
                self.parts[aggregate_id].extend(encoded)
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
        elif isinstance(effect, StopTask):
            if self.tasks.pop(effect.token, None) is None:
                self.stopped.append(effect.token)
            else:
                self.never_issued.append(effect.token)
        elif isinstance(effect, PutDeadLetter):
            self.dead_letters.append(effect.letter)
        elif isinstance(effect, PostCommitEffect):
            self.post_commit_effects.append(effect)

    def seal(self, sequence: int) -> Iterator[Commit]:
        """Yields one commit, or several if a single decision exceeds the limits of the store.

        Only the last commit consumes the inbox. After a crash between two commits, the next owner
        decides the command again on the stored state. ResumeExecution then completes the missing
        part.
        """
        limits = self.limits
        commit = self._build_whole_commit(sequence, limits)
        if commit is not None:
            yield commit
            return
        pieces = list(self._split_rows(limits))
        for offset, piece in enumerate(pieces):
            is_last = offset == len(pieces) - 1
            yield self._build_commit(
                sequence + offset, piece, consumed=self.consumed if is_last else None
            )

    def _build_whole_commit(self, sequence: int, limits: CommitLimits) -> Commit | None:
        """Returns the whole batch as one commit, or None if that commit exceeds the limits."""
        commit = Commit(
            sequence=sequence,
            consumed=self.consumed,
            histories=self._build_histories(self.parts),
            headers=[*map(build_header, self.changed.values()), *self.headers],
            closed=list(self.closed),
            tasks=list(self.tasks.values()),
            dropped=self.dropped,
            stopped=self.stopped,
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
        # The type checker can't know that `_list_row_groups` names the field that fits each row.
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
        """Yields rows that must stay in one commit, with their size in bytes.

        A crash between two commits loses the rows of the later ones. With this order,
        ResumeExecution finds everything again that a crash may lose:

        1. Messages go first: a repeated message is harmless, a lost one is not. The cancellation of
           a child in this batch becomes a message as well. If only its parent were written as
           finished, no recovery would read the parent again, and nothing else would cancel the
           child.
        2. Dropped and stopped tasks and cleared timers precede the history that explains them.
           After the history, a cancelled task might start in between, and recovery does not read a
           finished execution again. A running execution loses nothing: recovery issues the task and
           sets the timer again.
        3. Histories are in the order of the decisions. A parent that ended because its child ended,
           while nothing of the child was written, would never create that child again.
        4. A header is in one group with the last part of its history. Otherwise a finished
           execution might be listed as running for ever.
        5. New timers and tasks go last: recovery derives them from the history.
        """
        for message in (*self.cancels, *self.messages):
            yield [("messages", message)], 0
        for token in self.dropped:
            yield [("dropped", token)], 0
        for token in self.stopped:
            yield [("stopped", token)], 0
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
