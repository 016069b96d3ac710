"""Views of one node in detail: its attempts, built from the history, and its items."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from runnel.core import events as e
from runnel.core.codec import decode_entry
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId
from runnel.core.retry import ErrorInfo
from runnel.core.states import NodeState
from runnel.core.values import Json, TaskLogLine
from runnel.views import Timestamp, make_timestamp
from runnel.views.value import BoundedRepr, ValuePreview


class AttemptOutcome(StrEnum):
    """The outcome of an attempt. An attempt with one of the first three outcomes has not ended."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"
    LOST = "lost"
    DEFERRED = "deferred"
    CANCELLED = "cancelled"


OPEN_OUTCOMES = frozenset({AttemptOutcome.QUEUED, AttemptOutcome.RUNNING, AttemptOutcome.WAITING})


class ErrorView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of an attempt; `types` are its class and base classes, most derived first.

    `retryable` states whether a retry can help; null if the error does not define it.
    `retry_after_s` is the minimum delay before a retry.
    """

    type: str
    message: str
    traceback: str | None
    types: Sequence[str] = ()
    retryable: bool | None = None
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the code of a node wrote to `ctx.logger`."""

    at: Timestamp
    level: str
    text: str


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a node; `logs` are the last lines that its code wrote to `ctx.logger`.

    `started_at` is a time of the worker's clock; all other times are of the orchestrator's clock.
    `next_at` is the time of the next attempt, after a failure or a rate limit. `child_id` is the
    child execution of this attempt.
    """

    number: int
    outcome: AttemptOutcome
    worker: str = ""
    queued_at: Timestamp | None = None
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    error: ErrorView | None = None
    logs: Sequence[LogLine] = ()
    reason: str = ""
    next_at: Timestamp | None = None
    child_id: str | None = None
    is_cached: bool = False


class ItemView(BoundedRepr, frozen=True, kw_only=True):
    """One item of a map; `attempts` is the number of its attempts.

    An output above 64 KB is null and has a preview.
    """

    item: int
    status: NodeState
    attempts: int
    worker: str
    started_at: Timestamp | None
    finished_at: Timestamp | None
    error: ErrorView | None
    output: Json
    child_id: str | None
    output_preview: ValuePreview | None = None


class ItemsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the items of a map, in the order of the `for_each` list."""

    count: int
    settled: int
    items: Sequence[ItemView]
    next: Annotated[
        int | None,
        Meta(description="The value of `items_after` for the next page; null after the last page"),
    ]


class NodeDetail(BoundedRepr, frozen=True, kw_only=True):
    """The detail of a node: its config, inputs, output and attempts; a map also has `items`.

    `config_error` is the reason why `config` can't be shown. `inputs` are the outputs of the
    parents. An input above 64 KB and an output above 1 MB is null and has a preview.
    """

    execution_id: ExecutionId
    node_id: str
    item: int | None
    handler: str
    status: NodeState
    attempts: Sequence[AttemptView]
    config: Annotated[
        Json, Meta(description="The config of the last attempt, with the names of secrets")
    ]
    config_error: str | None
    inputs: dict[str, Json]
    output: Json
    error: ErrorView | None
    reason: str | None
    waits_for: str | None
    due: Timestamp | None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    dependencies: dict[str, NodeState]
    child_id: str | None
    is_cached: bool
    items: ItemsPage | None
    output_preview: ValuePreview | None = None
    input_previews: dict[str, ValuePreview] = msgspec.field(default_factory=dict)


def build_error_view(error: ErrorInfo | None) -> ErrorView | None:
    if error is None:
        return None
    return ErrorView(
        type=error.type,
        message=error.message,
        traceback=error.traceback,
        types=error.types,
        retryable=error.retryable,
        retry_after_s=error.retry_after_s,
    )


class TimedEvent(msgspec.Struct, frozen=True):
    at: float
    event: e.AnyEvent


def iter_node_events(entries: Iterable[bytes], node: NodeId) -> Iterator[TimedEvent]:
    """Yields the events that name this node, in order."""
    for entry in map(decode_entry, entries):
        for event in entry.events:
            if getattr(event, "node", None) == node:
                yield TimedEvent(entry.at, event)


def build_attempts(events: Iterable[TimedEvent], *, item: int = NO_ITEM) -> Sequence[AttemptView]:
    """Returns the attempts of a node or item in order; empty if there is no attempt."""
    attempts: list[AttemptView] = []
    for timed in events:
        if getattr(timed.event, "item", NO_ITEM) == item:
            _apply_event(attempts, timed.event, timed.at)
    return attempts


def _apply_event(attempts: list[AttemptView], event: e.AnyEvent, at: float) -> None:
    match event:
        case e.NodeQueued():
            attempts.append(
                AttemptView(
                    number=event.attempt, outcome=AttemptOutcome.QUEUED, queued_at=Timestamp(at)
                )
            )
        case e.NodeWaits(wait=e.Wait.SLEEP | e.Wait.SIGNAL | e.Wait.CHILD):
            attempts.append(_build_core_attempt(event, at))
        case e.NodeWaits(wait=e.Wait.RATE_LIMIT):
            _end_last(
                attempts,
                at,
                outcome=AttemptOutcome.DEFERRED,
                reason=event.detail,
                next_at=make_timestamp(event.due),
            )
        case e.NodeWaits(wait=e.Wait.CRASH):
            _update_last(attempts, next_at=make_timestamp(event.due))
        case e.NodeStarted():
            _update_last(
                attempts,
                outcome=AttemptOutcome.RUNNING,
                worker=event.worker,
                started_at=make_timestamp(event.started_at),
            )
        case e.NodeCompleted():
            _apply_report(
                attempts, event, at, outcome=AttemptOutcome.COMPLETED, is_cached=event.is_cached
            )
        case e.NodeSkipped():
            _apply_report(attempts, event, at, outcome=AttemptOutcome.SKIPPED, reason=event.detail)
        case e.NodeFailed():
            _apply_report(
                attempts,
                event,
                at,
                outcome=AttemptOutcome.FAILED,
                error=build_error_view(event.error),
            )
        case e.RetryPlanned():
            _apply_report(
                attempts,
                event,
                at,
                outcome=AttemptOutcome.FAILED,
                error=build_error_view(event.error),
                next_at=make_timestamp(event.due),
            )
        case e.TaskWasLost():
            _end_last(attempts, at, outcome=AttemptOutcome.LOST, reason=event.reason)
        case e.NodeCancelled():
            _end_last(attempts, at, outcome=AttemptOutcome.CANCELLED, reason=event.reason)


def _build_core_attempt(event: e.NodeWaits, at: float) -> AttemptView:
    return AttemptView(
        number=event.attempt or 1,
        outcome=AttemptOutcome.WAITING,
        queued_at=Timestamp(at),
        started_at=Timestamp(at),
        child_id=event.detail if event.wait is e.Wait.CHILD else None,
    )


def _apply_report(
    attempts: list[AttemptView],
    event: e.NodeCompleted | e.NodeSkipped | e.NodeFailed | e.RetryPlanned,
    at: float,
    **fields: object,
) -> None:
    """Ends the last attempt, and sets its worker and its start from the report.

    A short task has no NodeStarted event in the history, only the report.
    """
    reported = {"worker": event.worker, "started_at": make_timestamp(event.started_at)}
    known = {name: value for name, value in reported.items() if value}
    _end_last(attempts, at, logs=tuple(map(_build_log_line, event.logs)), **known, **fields)


def _end_last(attempts: list[AttemptView], at: float, **fields: object) -> None:
    """Ends the last attempt if it is open.

    When a map ends, or after a crash loop, no attempt is open.
    """
    if attempts and attempts[-1].outcome in OPEN_OUTCOMES:
        _update_last(attempts, finished_at=Timestamp(at), **fields)


def _update_last(attempts: list[AttemptView], **fields: object) -> None:
    if attempts:
        attempts[-1] = replace(attempts[-1], **fields)


def _build_log_line(line: TaskLogLine) -> LogLine:
    return LogLine(at=Timestamp(line.at), level=line.level, text=line.text)
