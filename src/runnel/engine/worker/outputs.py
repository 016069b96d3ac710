"""The results and errors of a task: encoded as JSON, and stored inline or in a blob."""

import asyncio
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from runnel.authoring.signatures import CompiledSignature
from runnel.authoring.single_types import MismatchError, ValueType
from runnel.authoring.storable_values import (
    convert_custom,
    encode_sorted,
    encode_value,
    find_unstorable_path,
)
from runnel.core.ids import TaskToken
from runnel.core.retry import MESSAGE_CHARS_MAX, RETRY_AFTER_S_MAX, TRACEBACK_CHARS_MAX, ErrorInfo
from runnel.core.values import (
    BLOB_BYTES_MAX,
    INLINE_BYTES_MAX,
    NULL,
    Value,
    find_non_finite,
    make_blob_reference,
    make_value_from_json,
)
from runnel.errors import PayloadError, RunnelError
from runnel.ports.records import BlobStore


class NotJsonError(PayloadError, TypeError):
    """Raised for a result that JSON can't represent.

    The class is a TypeError too, because json.dumps raises TypeError.
    """


def encode_result(result: Any, signature: CompiledSignature | None = None) -> bytes:
    """Returns a result encoded as JSON. Sets become lists; dates and UUIDs become texts.

    Raises NotJsonError if JSON can't represent the result, and if the result does not fit the
    annotation in the function's signature.
    """
    kind = None if signature is None else signature.result
    try:
        data = encode_value(result) if kind is None or not kind.has_sets else encode_sorted(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        path = find_unstorable_path(result, "result")
        raise NotJsonError(f"the result can't be stored as JSON: {path}: {error}") from error
    # msgspec encodes NaN as null. Without a null in the data there is no NaN to search for.
    if b"null" in data and result is not None:
        _check_finite(result)
    if kind is not None:
        _check_type(data, kind)
    return data


async def offload_result(data: bytes, token: TaskToken, blobs: BlobStore) -> Value:
    """Writes a large result to a blob; returns the reference to it once the blob is durable.

    Raises PayloadError if the result is too large even for a blob.
    """
    size = len(data)
    if size > BLOB_BYTES_MAX:
        raise PayloadError(
            f"the result of node '{token.node_id}' is {size:,} bytes, at most {BLOB_BYTES_MAX:,} "
            "are stored: write it to a file or a bucket and return its address"
        )
    key = f"{token.execution_id}/{token.node_id}/{token.item}/{token.attempt}-{token.nonce}"
    await blobs.put(key, data)
    return make_blob_reference(key, size)


def inline_if_small(data: bytes, bytes_max: int = INLINE_BYTES_MAX) -> Value | None:
    """Returns the result as an inline value, or None if it is too large for that."""
    if len(data) > bytes_max:
        return None
    return NULL if data == b"null" else make_value_from_json(data)


def _check_type(data: bytes, kind: ValueType) -> None:
    try:
        kind.decode_json(data, "result")
    except MismatchError as error:
        raise NotJsonError(f"the result does not fit its annotation: {error}") from None


def _check_finite(result: Any) -> None:
    non_finite = find_non_finite(result, "result", enc_hook=convert_custom)
    if non_finite is not None:
        path, number = non_finite
        raise NotJsonError(f"{path} is {number}, which JSON can't hold: return null for it")


# -- exceptions of user code: bounded, storable, without the engine's own frames -----------

_ENGINE_PATH = str(Path(__file__).parents[2])
_IMPORT_MACHINERY = "<frozen importlib"
_CANCELLED_ITSELF = (
    "the code cancelled itself or awaited a cancelled task: Runnel had not stopped this task"
)


def describe_exception(error: BaseException) -> ErrorInfo:
    try:
        return _describe(error)
    except BaseException as broken:  # noqa: BLE001  # the user's class may raise anything
        name = escape_text(type(error).__name__)
        return ErrorInfo(
            type=name, message=f"(the error can't be described: {type(broken).__name__})"
        )


def escape_text(text: str) -> str:
    """Returns the text with unprintable characters escaped.

    Examples are control characters of a terminal, and bytes of a file name that UTF-8 can't encode.
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def _describe(error: BaseException) -> ErrorInfo:
    kind = type(error)
    bases = [base for base in kind.__mro__ if base not in (object, BaseException)]
    retryable = getattr(error, "retryable", None)
    return ErrorInfo(
        type=escape_text(kind.__name__),
        message=_format_message(error),
        types=tuple(escape_text(base.__name__) for base in bases),
        retryable=retryable if isinstance(retryable, bool) else None,
        traceback=_format_traceback(error),
        retry_after_s=_get_retry_after(error),
    )


def _get_retry_after(error: BaseException) -> float | None:
    """Returns the error's `retry_after_s`, or None if it has no valid one."""
    delay_s = getattr(error, "retry_after_s", None)
    if not isinstance(delay_s, int | float) or isinstance(delay_s, bool) or not delay_s >= 0:
        return None
    return min(float(delay_s), RETRY_AFTER_S_MAX)


def _format_message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001  # the user's __str__ may raise anything
        text = f"(the message can't be shown: {type(broken).__name__})"
    if not text and isinstance(error, asyncio.CancelledError):
        return _CANCELLED_ITSELF
    text = escape_text(text)
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    return text[: MESSAGE_CHARS_MAX - 1] + "…"


def _format_traceback(error: BaseException) -> str | None:
    """Returns the traceback of user code.

    Returns None if all frames are inside Runnel, because then the message is enough.
    """
    if isinstance(error, RunnelError) and error.says_all:
        return None
    user_part = _skip_engine_frames(error.__traceback__)
    if user_part is None:
        return None
    lines = traceback.format_exception(type(error), error, user_part)
    text = escape_text("".join(lines))
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    return "…" + text[1 - TRACEBACK_CHARS_MAX :]


def _skip_engine_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if not name.startswith((_ENGINE_PATH, _IMPORT_MACHINERY)):
            return frames
        frames = frames.tb_next
    return None
