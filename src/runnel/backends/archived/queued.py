"""Which tasks an execution is waiting for, told by its events alone."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from runnel.core.codec import decode_entry
from runnel.core.events import (
    AnyEvent,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
    RetryPlanned,
)
from runnel.core.ids import ExecutionId, Token
from runnel.errors import UnreadableFormatError

_ENDS = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled, RetryPlanned, NodeWaits)


def queued_tokens(execution_id: ExecutionId, entries: Iterable[bytes]) -> set[Token]:
    """Those that were issued and neither settled nor replaced: queued or running."""
    found: dict[tuple[str, int], Token] = {}
    for event in _readable_events(entries):
        if isinstance(event, NodeQueued):
            token = Token(execution_id, event.node, event.item, event.attempt, event.nonce)
            found[event.node, event.item] = token
        elif isinstance(event, _ENDS):
            found.pop((event.node, event.item), None)
    return set(found.values())


def _readable_events(entries: Iterable[bytes]) -> Iterator[AnyEvent]:
    """A damaged history is its execution's misfortune, which the recovery tells of."""
    for data in entries:
        with suppress(UnreadableFormatError):
            yield from decode_entry(data).events
