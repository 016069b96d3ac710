"""The values that the API sends, the clients return and the command line prints.

A view holds a time as a `Timestamp`: seconds in Python, ISO-8601 text in UTC in JSON.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Timestamp(float):
    """Seconds since the epoch, which JSON has as `2026-01-31T09:30:00.250Z`."""

    __slots__ = ()


def make_timestamp(seconds: float | None) -> Timestamp | None:
    """Mark seconds as a time of a view; None stays None."""
    return None if seconds is None else Timestamp(seconds)


def format_timestamp(seconds: float) -> str:
    """Write `2026-01-31T09:30:00.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_timestamp(text: str) -> Timestamp:
    """Read ISO-8601 text; raises ValueError."""
    return Timestamp(datetime.fromisoformat(text).timestamp())


def encode_view(view: object) -> bytes:
    """Encode a view as the API sends it."""
    return _encoder.encode(view)


def build_document(view: object) -> Any:
    """Build the JSON value of a view out of dicts, lists and texts."""
    return msgspec.json.decode(encode_view(view))


def decode_view(data: bytes | str, kind: type[T]) -> T:
    """Decode what `encode_view` has encoded; raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=kind, dec_hook=decode_hook)


def encode_hook(value: object) -> str:
    """Encode what msgspec does not know: a Timestamp."""
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    raise TypeError(f"a view holds a {type(value).__name__}")


def decode_hook(kind: type[Any], value: object) -> Any:
    """Decode what msgspec does not know: a Timestamp, of text or of seconds."""
    if kind is not Timestamp:
        raise TypeError(f"a view holds a {kind.__name__}")
    if isinstance(value, str):
        return parse_timestamp(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Timestamp(value)
    raise TypeError(f"expected a time, got {type(value).__name__}")


def schema_hook(kind: type[Any]) -> dict[str, Any]:
    """Describe what msgspec does not know in JSON Schema: a Timestamp."""
    if kind is Timestamp:
        return {"type": "string", "format": "date-time", "examples": ["2026-01-31T09:30:00.250Z"]}
    raise TypeError(f"a view holds a {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
