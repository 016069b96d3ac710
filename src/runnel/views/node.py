"""The attempts of a node, or of an item of its map, as the history tells them."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from runnel.core import events as e
from runnel.core.codec import decode_entry
from runnel.core.ids import NO_ITEM, NodeId
from runnel.core.values import TaskLogLine
from runnel.core.workflow import ErrorInfo


class AttemptOutcome(StrEnum):
    """What became of an attempt; the first three are of one that is not over."""

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


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """`started_at` is by the worker's clock, all else by that of who decides.

    `next_at` is when the next one is due, after a failure or a rate limit. `child_id` is the child
    execution that this attempt waits or waited for. `logs` are the last lines of its code.
    """

    number: int
    outcome: AttemptOutcome
    worker: str = ""
    queued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorInfo | None = None
    reason: str = ""
    next_at: float | None = None
    child_id: str | None = None
    is_cached: bool = False
    logs: tuple[TaskLogLine, ...] = ()


class TimedEvent(msgspec.Struct, frozen=True):
    at: float
    event: e.AnyEvent


def iter_node_events(entries: Iterable[bytes], node: NodeId) -> Iterator[TimedEvent]:
    """All that names this node, and what ends everything, in order."""
    for entry in map(decode_entry, entries):
        for event in entry.events:
            if getattr(event, "node", None) == node:
                yield TimedEvent(entry.at, event)


def build_attempts(events: Iterable[TimedEvent], *, item: int = NO_ITEM) -> Sequence[Attempt]:
    """The first one first; none of a node that no attempt was made of."""
    found: list[Attempt] = []
    for each in events:
        if getattr(each.event, "item", NO_ITEM) == item:
            _apply_event(found, each.event, each.at)
    return found


def _apply_event(attempts: list[Attempt], event: e.AnyEvent, at: float) -> None:
    match event:
        case e.NodeQueued():
            attempts.append(
                Attempt(number=event.attempt, outcome=AttemptOutcome.QUEUED, queued_at=at)
            )
        case e.NodeWaits(wait=e.Wait.SLEEP | e.Wait.SIGNAL | e.Wait.CHILD):
            attempts.append(_build_core_attempt(event, at))
        case e.NodeWaits(wait=e.Wait.RATE_LIMIT):
            _end_last(
                attempts,
                at,
                outcome=AttemptOutcome.DEFERRED,
                reason=event.detail,
                next_at=event.due,
            )
        case e.NodeWaits(wait=e.Wait.CRASH):
            _update_last(attempts, next_at=event.due)
        case e.NodeStarted():
            _update_last(
                attempts,
                outcome=AttemptOutcome.RUNNING,
                worker=event.worker,
                started_at=event.started_at,
            )
        case e.NodeCompleted():
            _apply_report(
                attempts, event, at, outcome=AttemptOutcome.COMPLETED, is_cached=event.is_cached
            )
        case e.NodeSkipped():
            _apply_report(attempts, event, at, outcome=AttemptOutcome.SKIPPED, reason=event.detail)
        case e.NodeFailed():
            _apply_report(attempts, event, at, outcome=AttemptOutcome.FAILED, error=event.error)
        case e.RetryPlanned():
            _apply_report(
                attempts,
                event,
                at,
                outcome=AttemptOutcome.FAILED,
                error=event.error,
                next_at=event.due,
            )
        case e.TaskWasLost():
            _end_last(attempts, at, outcome=AttemptOutcome.LOST, reason=event.reason)
        case e.NodeCancelled():
            _end_last(attempts, at, outcome=AttemptOutcome.CANCELLED, reason=event.reason)


def _build_core_attempt(event: e.NodeWaits, at: float) -> Attempt:
    return Attempt(
        number=event.attempt or 1,
        outcome=AttemptOutcome.WAITING,
        queued_at=at,
        started_at=at,
        child_id=event.detail if event.wait is e.Wait.CHILD else None,
    )


def _apply_report(
    attempts: list[Attempt],
    event: e.NodeCompleted | e.NodeSkipped | e.NodeFailed | e.RetryPlanned,
    at: float,
    **fields: object,
) -> None:
    """A report says who ran it, and when: a short task was never shown as running before."""
    said = {"worker": event.worker, "started_at": event.started_at}
    known = {name: value for name, value in said.items() if value}
    _end_last(attempts, at, logs=event.logs, **known, **fields)


def _end_last(attempts: list[Attempt], at: float, **fields: object) -> None:
    """What ends after its last attempt has ended was not ended by it: a map, a crash loop."""
    if attempts and attempts[-1].outcome in OPEN_OUTCOMES:
        _update_last(attempts, finished_at=at, **fields)


def _update_last(attempts: list[Attempt], **fields: object) -> None:
    if attempts:
        attempts[-1] = replace(attempts[-1], **fields)
