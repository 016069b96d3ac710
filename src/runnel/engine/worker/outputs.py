"""A handler's result on its way out: JSON bytes, inline when small, a blob when large."""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import PurePath
from typing import Any

import msgspec

from runnel.core.ids import Token
from runnel.core.json_types import Json
from runnel.core.values import BLOB_BYTES_MAX, INLINE_BYTES_MAX, NULL, Value, blob, from_bytes
from runnel.errors import PayloadError
from runnel.ports.blobs import BlobStore


class NotJsonError(PayloadError, TypeError):
    """A result that JSON can't hold; a TypeError too, because that is how users know it."""


def encode(result: Any) -> bytes:
    """Raises NotJsonError in one sentence; sets become lists, dates and UUIDs become text."""
    try:
        data = _encoder.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotJsonError(f"the result can't be stored as JSON: {error}") from error
    # msgspec writes NaN as null: without a null there is none, and nothing more to look at.
    if b"null" in data and result is not None:
        _refuse_not_finite(result)
    return data


async def store(data: bytes, token: Token, blobs: BlobStore) -> Value:
    """Returns once a large result is safe in a blob; raises PayloadError when it is too large."""
    size = len(data)
    if size > BLOB_BYTES_MAX:
        raise PayloadError(
            f"the result of node '{token.node_id}' is {size:,} bytes, at most {BLOB_BYTES_MAX:,} "
            "are stored: write it to a file or a bucket and return where it is"
        )
    key = f"{token.execution_id}/{token.node_id}/{token.item}/{token.attempt}-{token.nonce}"
    await blobs.put(key, data)
    return blob(key, size)


def inline_value(data: bytes, bytes_max: int = INLINE_BYTES_MAX) -> Value | None:
    """None when it is too large to be carried along."""
    if len(data) > bytes_max:
        return None
    return NULL if data == b"null" else from_bytes(data)


def _plain(value: Any) -> Any:
    """What msgspec asks for types it does not know; found by what they can do, not by import."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    if hasattr(value, "dtype"):
        return value.tolist() if getattr(value, "shape", ()) else value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    kind = type(value)
    if kind in (tuple, frozenset, bytes, bool, type(None)):  # as values these never get here
        raise TypeError(f"a key of a dict is {value!r}; keys must be texts or numbers")
    raise TypeError(
        f"it holds a {kind.__module__}.{kind.__qualname__}; return numbers, texts, lists, dicts, "
        "dataclasses or pydantic models"
    )


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_binary = msgspec.msgpack.Encoder(enc_hook=_plain)
# A double in MessagePack whose exponent is all ones; may also be a text that looks like it.
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


def _refuse_not_finite(result: Any) -> None:
    """Walks the result only if its MessagePack form, which has NaN, looks as if it held one."""
    if not _may_hold_not_finite(result):
        return
    for path, number in _numbers(msgspec.to_builtins(result, enc_hook=_plain), "result"):
        if not isfinite(number):
            raise NotJsonError(f"{path} is {number}, which JSON can't hold: return null for it")


def _may_hold_not_finite(result: Any) -> bool:
    try:
        return _NOT_FINITE.search(_binary.encode(result)) is not None
    except OverflowError:  # an integer beyond 64 bits, which JSON can hold
        return True


def _numbers(value: Json, path: str) -> Iterator[tuple[str, float]]:
    stack = [(path, value)]
    while stack:
        place, found = stack.pop()
        if isinstance(found, float):
            yield place, found
        elif isinstance(found, dict):
            stack.extend((f"{place}.{key}", item) for key, item in found.items())
        elif isinstance(found, list | tuple | set | frozenset):
            stack.extend((f"{place}[{index}]", item) for index, item in enumerate(found))
