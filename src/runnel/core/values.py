"""JSON values as the engine carries them, checks of JSON numbers, and the log lines of a task.

A value is raw bytes inline, or a reference to a blob. Nothing on the hot path looks inside:
handlers encode a value once, readers decode it once.
"""

import re
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, TypeAlias

import msgspec

# A payload as decoded from JSON: None, bool, int, float, str, list of these, dict from str to
# these. Any, because a recursive alias makes every step into a payload a cast that checks nothing
# at run time.
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


def is_number(value: Json) -> bool:
    """True and False are not numbers here, as in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def find_non_finite(
    value: Json, path: str, *, enc_hook: Callable[[Any], Any] | None = None
) -> tuple[str, float] | None:
    """Returns the first NaN or infinity and its path below `path`; None without one.

    Walks the value only if its MessagePack form, which has these, looks as if it held one.
    `enc_hook` converts the types that msgspec does not know.
    """
    if not _may_hold_non_finite(value, enc_hook):
        return None
    numbers = _iterate_floats(msgspec.to_builtins(value, enc_hook=enc_hook), path)
    return next(((place, number) for place, number in numbers if not isfinite(number)), None)


# A double in MessagePack whose exponent is all ones; may also be a text that looks like it.
_NON_FINITE_PATTERN = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def _may_hold_non_finite(value: Json, enc_hook: Callable[[Any], Any] | None) -> bool:
    try:
        data = msgspec.msgpack.encode(value, enc_hook=enc_hook)
    except OverflowError:  # an integer beyond 64 bits, which JSON can hold
        return True
    return _NON_FINITE_PATTERN.search(data) is not None


def _iterate_floats(value: Json, path: str) -> Iterator[tuple[str, float]]:
    """In the order of the document, without recursion."""
    stack = [(path, value)]
    while stack:
        place, part = stack.pop()
        if isinstance(part, float):
            yield place, part
        elif isinstance(part, dict):
            stack.extend(reversed([(f"{place}.{key}", item) for key, item in part.items()]))
        elif isinstance(part, list | tuple):
            stack.extend(reversed([(f"{place}[{at}]", item) for at, item in enumerate(part)]))


NULL = make_inline_value(None)
EMPTY_OBJECT = make_inline_value({})


# Of the log lines of one attempt, the last ones are kept with its execution: ten kilobytes at
# most, and nothing for code that does not log.
LOG_LINES_MAX = 20
LOG_LINE_CHARS_MAX = 500


class TaskLogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: float
    level: str
    text: str
