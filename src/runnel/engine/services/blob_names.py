"""Which blobs the events of commits refer to."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from runnel.core.codec import Entry, decode_entry
from runnel.core.events import MapStarted
from runnel.core.values import Value
from runnel.errors import UnreadableFormatError
from runnel.ports.journal import JournalEntry

# How an entry that refers to a blob looks from outside: few do, and only those are decoded.
BLOB_MARK = b'"blob":'


def blobs_in(entries: Sequence[JournalEntry]) -> Iterator[str]:
    for entry in entries:
        for history in entry.histories:
            if BLOB_MARK in history.entry:
                # One that a later version wrote is archived without: it knows its own.
                with suppress(UnreadableFormatError):
                    yield from _blobs_of(decode_entry(history.entry))


def _blobs_of(entry: Entry) -> Iterator[str]:
    for event in entry.events:
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Value) and value.blob is not None:
                yield value.blob
        if isinstance(event, MapStarted):
            yield from (value.blob for value in event.shared.values() if value.blob is not None)
