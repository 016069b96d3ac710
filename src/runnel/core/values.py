"""JSON values inside the engine, checks of JSON numbers, and the log lines of a task.

A value holds JSON bytes, or a reference to a blob. The orchestrator passes values on without
decoding them. A worker encodes a value once, and each reader decodes it once.
"""

import operator
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import isfinite
from typing import Any, TypeAlias

import msgspec

# A payload as decoded from JSON: None, bool, int, float, str, or lists and dicts of these. The
# alias is Any, because a recursive alias would need an unchecked cast at every access.
Json: TypeAlias = Any


INLINE_BYTES_MAX = 256 * 1024
# The largest value that each item of a map carries inline. With Redis and PostgreSQL, a task with a
# blob reference costs as much as a task that carries 8 to 16 kB.
SHARED_BYTES_MAX = 8 * 1024
BLOB_BYTES_MAX = 64 * 1024 * 1024

# A single object means "no data", because msgspec omits a field only if it *is* its default.
NO_DATA = msgspec.Raw()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A JSON value.

    Exactly one of `data` (JSON bytes) and `blob` (a key in the BlobStore) is set.
    """

    data: msgspec.Raw = NO_DATA
    blob: str | None = None
    size: int = 0

    def decode(self) -> Json:
        """Returns the Python form of an inline value."""
        return _decoder.decode(self.data)


def make_inline_value(value: Json) -> Value:
    """Returns an inline value of any size, for tests and for values that are known to be small."""
    return make_value_from_json(_encoder.encode(value))


def make_value_from_json(data: bytes) -> Value:
    return Value(data=msgspec.Raw(data), size=len(data))


def make_blob_reference(key: str, size: int) -> Value:
    return Value(blob=key, size=size)


def is_number(value: Json) -> bool:
    """Returns True if the value is a JSON number. Returns False for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def find_non_finite(
    value: Json, path: str, *, enc_hook: Callable[[Any], Any] | None = None
) -> tuple[str, float] | None:
    """Returns the path and value of the first NaN or infinity, or None if there is none.

    Walks the value only if its MessagePack form, which can represent NaN and infinity, seems to
    contain one. `path` is the prefix of the returned path. `enc_hook` converts types that msgspec
    does not know.
    """
    if not _may_hold_non_finite(value, enc_hook):
        return None
    numbers = _iterate_floats(msgspec.to_builtins(value, enc_hook=enc_hook), path)
    return next(
        ((number_path, number) for number_path, number in numbers if not isfinite(number)), None
    )


def find_repeated_item(items: Sequence[Json]) -> int | None:
    """Returns the index of the first item that is equal to an earlier one, or None.

    As in JSON Schema, 1 equals 1.0 but not true. Raises RecursionError for a deeply nested item.
    """
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        key = _make_hashable(item)
        if key in seen:
            return index
        seen.add(key)
    return None


def _make_hashable(value: Json) -> Hashable:
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, dict):
        return dict, frozenset((key, _make_hashable(item)) for key, item in value.items())
    if isinstance(value, list):
        return list, tuple(map(_make_hashable, value))
    hashable: Hashable = value
    return hashable


# Matches a MessagePack double whose exponent bits are all ones. A part of a text may match as well.
_NON_FINITE_PATTERN = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def _may_hold_non_finite(value: Json, enc_hook: Callable[[Any], Any] | None) -> bool:
    try:
        data = msgspec.msgpack.encode(value, enc_hook=enc_hook)
    except OverflowError:  # an integer above 64 bits, which JSON can represent
        return True
    return _NON_FINITE_PATTERN.search(data) is not None


def _iterate_floats(value: Json, path: str) -> Iterator[tuple[str, float]]:
    """Yields the path and value of each float, in the order of the document, without recursion."""
    stack = [(path, value)]
    while stack:
        part_path, part = stack.pop()
        if isinstance(part, float):
            yield part_path, part
        elif isinstance(part, dict):
            stack.extend(reversed([(f"{part_path}.{key}", item) for key, item in part.items()]))
        elif isinstance(part, list | tuple):
            stack.extend(
                reversed([(f"{part_path}[{position}]", item) for position, item in enumerate(part)])
            )


NULL = make_inline_value(None)
EMPTY_OBJECT = make_inline_value({})


# The number of last log lines that are stored for each attempt: at most 10 kB, and nothing for code
# that does not log.
LOG_LINES_MAX = 20
LOG_LINE_CHARS_MAX = 500


class TaskLogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line that the code of a task has logged."""

    at: float
    level: str
    text: str


def replace_whole_floats(value: Json) -> Json:
    """Returns the value with 1 for each 1.0, because JSON does not distinguish them.

    Returns the same object if there is no such float, or if the value is nested too deeply.
    """
    try:
        return _replace_whole_floats(value)
    except RecursionError:
        return value


def _replace_whole_floats(value: Json) -> Json:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        items = [_replace_whole_floats(item) for item in value]
        return items if any(map(operator.is_not, items, value)) else value
    if isinstance(value, dict):
        fields = {key: _replace_whole_floats(item) for key, item in value.items()}
        return fields if any(fields[key] is not item for key, item in value.items()) else value
    return value
