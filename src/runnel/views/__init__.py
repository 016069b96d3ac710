"""Views: the values that the API sends, the clients return and the command line prints.

A view holds a time as a `Timestamp`: seconds in Python, ISO-8601 text in UTC in JSON.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Timestamp(float):
    """Seconds since the epoch, which JSON encodes as text like `2026-01-31T09:30:00.250Z`."""

    __slots__ = ()


def make_timestamp(seconds: float | None) -> Timestamp | None:
    """Returns seconds since the epoch as a Timestamp; None for None."""
    return None if seconds is None else Timestamp(seconds)


def format_timestamp(seconds: float) -> str:
    """Returns a time as text such as `2026-01-31T09:30:00.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_timestamp(text: str) -> Timestamp:
    """Parses ISO-8601 text; raises ValueError."""
    return Timestamp(datetime.fromisoformat(text).timestamp())


def encode_view(view: object) -> bytes:
    """Encodes a view as JSON, as the API sends it."""
    return _encoder.encode(view)


def build_document(view: object) -> Any:
    """Returns the JSON value of a view, made of dicts, lists and texts."""
    return msgspec.json.decode(encode_view(view))


def decode_view(data: bytes | str, kind: type[T]) -> T:
    """Decodes the JSON of a view.

    Raises msgspec.DecodeError for invalid JSON, and its subclass ValidationError for JSON that does
    not match `kind`.
    """
    return msgspec.json.decode(data, type=kind, dec_hook=decode_hook)


def encode_hook(value: object) -> str:
    """Encodes a Timestamp, the only type in views that msgspec can't encode itself."""
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    raise TypeError(f"a view can't hold a {type(value).__name__}")


def decode_hook(kind: type[Any], value: object) -> Any:
    """Decodes a Timestamp from text or from seconds."""
    if kind is not Timestamp:
        raise TypeError(f"a view can't hold a {kind.__name__}")
    if isinstance(value, str):
        return parse_timestamp(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Timestamp(value)
    raise TypeError(f"expected a time, got {type(value).__name__}")


def schema_hook(kind: type[Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a Timestamp."""
    if kind is Timestamp:
        return {"type": "string", "format": "date-time", "examples": ["2026-01-31T09:30:00.250Z"]}
    raise TypeError(f"a view can't hold a {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
