"""Which tasks an execution is waiting for, told by its events alone."""

from collections.abc import Iterable

from runnel.core.codec import decode_entry
from runnel.core.events import (
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
    RetryPlanned,
)
from runnel.core.ids import ExecutionId, Token

_ENDS = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled, RetryPlanned, NodeWaits)


def queued_tokens(execution_id: ExecutionId, entries: Iterable[bytes]) -> set[Token]:
    """Those that were issued and neither settled nor replaced: queued or running."""
    found: dict[tuple[str, int], Token] = {}
    for data in entries:
        for event in decode_entry(data).events:
            if isinstance(event, NodeQueued):
                place = (event.node, event.item)
                found[place] = Token(
                    execution_id, event.node, event.item, event.attempt, event.nonce
                )
            elif isinstance(event, _ENDS):
                found.pop((event.node, event.item), None)
    return set(found.values())
