"""A decision's events as the pieces that one commit must not tear apart."""

from collections.abc import Iterator, Sequence

from runnel.core.codec import encode_events
from runnel.core.events import (
    AnyEvent,
    MapStarted,
    NodeCancelled,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
)
from runnel.core.ids import NO_ITEM
from runnel.errors import PayloadError

# Before one of these a decision may be cut: should the rest never be written, ResumeExecution
# finds it again from the state. Inside such a run it would not: an item that failed and its map
# that did not, a signal that was taken and its node that still waits.
_BEGINS_ANEW = (NodeQueued, NodeSkipped, NodeWaits, MapStarted)


def encode_parts(events: Sequence[AnyEvent], size_max: int) -> list[bytes]:
    """One part, or several of at most `size_max` bytes; raises PayloadError when that can't be."""
    whole = encode_events(events)
    if len(whole) <= size_max:
        return [whole]
    parts: list[bytes] = []
    for run in map(encode_events, _runs(events)):
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


def _begins_anew(event: AnyEvent) -> bool:
    if isinstance(event, NodeCancelled):
        return event.item == NO_ITEM  # items are cancelled between their map's failure and its end
    return isinstance(event, _BEGINS_ANEW)


def _runs(events: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    start = 0
    for position, event in enumerate(events):
        if position and _begins_anew(event):
            yield events[start:position]
            start = position
    yield events[start:]
