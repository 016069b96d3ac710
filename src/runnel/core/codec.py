"""The stored formats: versioned JSON that every later version of Runnel can read.

A history entry is `[version, at, [events]]`, a message is `[version, command]`. The tests keep a
fixture of each released version. A new version of the format adds a decoder and never changes an
old one.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from runnel.core.commands import Command
from runnel.core.events import AnyEvent
from runnel.errors import NewerFormatError, UnreadableFormatError

FORMAT_VERSION = 1


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True):
    """The events that one commit appended to one aggregate."""

    version: int
    at: float
    events: list[AnyEvent]


class InboxMessage(msgspec.Struct, frozen=True, array_like=True):
    """A command with the version of its format."""

    version: int
    command: Command


class _FormatVersion(msgspec.Struct, frozen=True, array_like=True):
    version: int


T = TypeVar("T", HistoryEntry, InboxMessage)

_encoder = msgspec.json.Encoder()
_entry_decoder = msgspec.json.Decoder(HistoryEntry)
_message_decoder = msgspec.json.Decoder(InboxMessage)
_version_decoder = msgspec.json.Decoder(_FormatVersion)


def encode_entry(at: float, events: Sequence[AnyEvent]) -> bytes:
    return _encoder.encode(HistoryEntry(FORMAT_VERSION, at, list(events)))


def encode_events(events: Sequence[AnyEvent]) -> bytes:
    """Returns events encoded as a part of an entry. `join_entry` joins such parts to an entry."""
    return _encoder.encode(events)[1:-1]


def join_entry(at: float, parts: Sequence[bytes]) -> bytes:
    """Returns one history entry with the events of all parts, byte for byte as `encode_entry`
    does.
    """
    return b"[%d,%b,[%b]]" % (FORMAT_VERSION, _encoder.encode(at), b",".join(parts))


def decode_entry(data: bytes) -> HistoryEntry:
    """Returns the history entry.

    Raises UnreadableFormatError if no version up to this one has written the data.
    """
    return _decode(_entry_decoder, data, "history entry")


def encode_message(command: Command) -> bytes:
    return _encoder.encode(InboxMessage(FORMAT_VERSION, command))


def decode_message(data: bytes) -> Command:
    """Returns the command.

    Raises UnreadableFormatError if no version up to this one has written the data.
    """
    return _decode(_message_decoder, data, "message").command


def _decode(decoder: "msgspec.json.Decoder[T]", data: bytes, kind: str) -> T:
    try:
        decoded = decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _make_unreadable_error(kind, data, error) from error
    if decoded.version > FORMAT_VERSION:
        raise NewerFormatError(_format_too_new(kind, decoded.version))
    return decoded


def _make_unreadable_error(kind: str, data: bytes, error: Exception) -> UnreadableFormatError:
    try:
        version = _version_decoder.decode(data).version
    except (msgspec.DecodeError, msgspec.ValidationError):
        size = f"{len(data)} bytes"
        return UnreadableFormatError(f"a {kind} of {size} is not in Runnel's format: {error}")
    if version > FORMAT_VERSION:
        return NewerFormatError(_format_too_new(kind, version))
    return UnreadableFormatError(f"a {kind} of format {version} can't be decoded: {error}")


def _format_too_new(kind: str, version: int) -> str:
    return f"a {kind} has format {version}, this Runnel reads up to {FORMAT_VERSION}: upgrade it"
