"""A JSON value as the engine carries it: raw bytes inline, or a reference to a blob.

Nothing on the hot path looks inside: handlers encode a value once, readers decode it once.
"""

from typing import Any, TypeAlias

import msgspec

# The JSON edge: what a user's payload is made of, as decoded from JSON.

# None, bool, int, float, str, list of these, dict from str to these. Any, because a recursive
# alias makes every step into a payload a cast that checks nothing at run time.
Json: TypeAlias = Any


INLINE_BYTES_MAX = 256 * 1024
# Of a value that every item of a map carries. On servers, a task that names a blob and one that
# carries 8 to 16 kB cost the same.
SHARED_BYTES_MAX = 8 * 1024
BLOB_BYTES_MAX = 64 * 1024 * 1024

# One object for "no data": msgspec leaves a field out when it *is* its default.
NO_DATA = msgspec.Raw()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Exactly one of `data` (JSON bytes) and `blob` (a key in the BlobStore) is set."""

    data: msgspec.Raw = NO_DATA
    blob: str | None = None
    size: int = 0

    def decode(self) -> Json:
        """The Python form of an inline value."""
        return _decoder.decode(self.data)


def make_inline_value(value: Json) -> Value:
    """A value held inline, whatever its size: for tests and for values known to be small."""
    return make_value_from_json(_encoder.encode(value))


def make_value_from_json(data: bytes) -> Value:
    return Value(data=msgspec.Raw(data), size=len(data))


def make_blob_reference(key: str, size: int) -> Value:
    return Value(blob=key, size=size)


NULL = make_inline_value(None)
EMPTY_OBJECT = make_inline_value({})


# What a task has logged, as far as it is kept with its execution.

# Of one attempt, the last ones: ten kilobytes at most, and nothing for code that does not log.
LOG_LINES_MAX = 20
LOG_LINE_CHARS_MAX = 500


class TaskLogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: float
    level: str
    text: str
