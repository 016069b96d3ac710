"""The attempts of a node, or of an item of its map, as the history tells them."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from runnel.core import events as e
from runnel.core.codec import decode_entry
from runnel.core.ids import NO_ITEM, NodeId
from runnel.core.values import LogLine
from runnel.core.workflow import ErrorInfo


class Outcome(StrEnum):
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


OPEN = frozenset({Outcome.QUEUED, Outcome.RUNNING, Outcome.WAITING})


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """`started_at` is by the worker's clock, all else by that of who decides.

    `next_at` is when the next one is due, after a failure or a rate limit. `child_id` is the child
    execution that this attempt waits or waited for. `logs` are the last lines of its code.
    """

    number: int
    outcome: Outcome
    worker: str = ""
    queued_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorInfo | None = None
    reason: str = ""
    next_at: float | None = None
    child_id: str | None = None
    is_cached: bool = False
    logs: tuple[LogLine, ...] = ()


class Happened(msgspec.Struct, frozen=True):
    at: float
    event: e.AnyEvent


def events_of(entries: Iterable[bytes], node: NodeId) -> Iterator[Happened]:
    """All that names this node, and what ends everything, in order."""
    for entry in map(decode_entry, entries):
        for event in entry.events:
            if getattr(event, "node", None) == node:
                yield Happened(entry.at, event)


def attempts_of(happened: Iterable[Happened], *, item: int = NO_ITEM) -> Sequence[Attempt]:
    """The first one first; none of a node that no attempt was made of."""
    found: list[Attempt] = []
    for each in happened:
        if getattr(each.event, "item", NO_ITEM) == item:
            _apply(found, each.event, each.at)
    return found


def _apply(found: list[Attempt], event: e.AnyEvent, at: float) -> None:
    match event:
        case e.NodeQueued():
            found.append(Attempt(number=event.attempt, outcome=Outcome.QUEUED, queued_at=at))
        case e.NodeWaits(wait=e.Wait.SLEEP | e.Wait.SIGNAL | e.Wait.CHILD):
            found.append(_of_core(event, at))
        case e.NodeWaits(wait=e.Wait.RATE_LIMIT):
            _end(found, at, outcome=Outcome.DEFERRED, reason=event.detail, next_at=event.due)
        case e.NodeWaits(wait=e.Wait.CRASH):
            _set_last(found, next_at=event.due)
        case e.NodeStarted():
            _set_last(
                found, outcome=Outcome.RUNNING, worker=event.worker, started_at=event.started_at
            )
        case e.NodeCompleted():
            _report(found, event, at, outcome=Outcome.COMPLETED, is_cached=event.is_cached)
        case e.NodeSkipped():
            _report(found, event, at, outcome=Outcome.SKIPPED, reason=event.detail)
        case e.NodeFailed():
            _report(found, event, at, outcome=Outcome.FAILED, error=event.error)
        case e.RetryPlanned():
            _report(found, event, at, outcome=Outcome.FAILED, error=event.error, next_at=event.due)
        case e.TaskWasLost():
            _end(found, at, outcome=Outcome.LOST, reason=event.reason)
        case e.NodeCancelled():
            _end(found, at, outcome=Outcome.CANCELLED, reason=event.reason)


def _of_core(event: e.NodeWaits, at: float) -> Attempt:
    return Attempt(
        number=event.attempt or 1,
        outcome=Outcome.WAITING,
        queued_at=at,
        started_at=at,
        child_id=event.detail if event.wait is e.Wait.CHILD else None,
    )


def _report(
    found: list[Attempt],
    event: e.NodeCompleted | e.NodeSkipped | e.NodeFailed | e.RetryPlanned,
    at: float,
    **fields: object,
) -> None:
    """A report says who ran it, and when: a short task was never shown as running before."""
    said = {"worker": event.worker, "started_at": event.started_at}
    known = {name: value for name, value in said.items() if value}
    _end(found, at, logs=event.logs, **known, **fields)


def _end(found: list[Attempt], at: float, **fields: object) -> None:
    """What ends after its last attempt has ended was not ended by it: a map, a crash loop."""
    if found and found[-1].outcome in OPEN:
        _set_last(found, finished_at=at, **fields)


def _set_last(found: list[Attempt], **fields: object) -> None:
    if found:
        found[-1] = replace(found[-1], **fields)
