"""An exception of user code as it travels: bounded, storable, without the engine's own frames."""

import asyncio
import traceback
from pathlib import Path
from types import TracebackType

from runnel.core.retry import (
    MESSAGE_CHARS_MAX,
    RETRY_AFTER_S_MAX,
    TRACEBACK_CHARS_MAX,
    ErrorInfo,
)
from runnel.errors import RunnelError

_ENGINE = str(Path(__file__).parents[2])
_IMPORT_MACHINERY = "<frozen importlib"
_CANCELLED_ITSELF = (
    "the code cancelled itself or awaited what was cancelled: nobody had stopped this task"
)


def error_info(error: BaseException) -> ErrorInfo:
    try:
        return _described(error)
    except BaseException as broken:  # noqa: BLE001  # its class is the user's: it may raise anything
        name = storable(type(error).__name__)
        return ErrorInfo(type=name, message=f"(it can't be described: {type(broken).__name__})")


def storable(text: str) -> str:
    """Escapes what UTF-8 can't hold (odd bytes of a file name) and what would steer a terminal."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def _described(error: BaseException) -> ErrorInfo:
    kind = type(error)
    bases = [base for base in kind.__mro__ if base not in (object, BaseException)]
    retryable = getattr(error, "retryable", None)
    return ErrorInfo(
        type=storable(kind.__name__),
        message=_message(error),
        types=tuple(storable(base.__name__) for base in bases),
        retryable=retryable if isinstance(retryable, bool) else None,
        traceback=_traceback(error),
        retry_after_s=_least_delay(error),
    )


def _least_delay(error: BaseException) -> float | None:
    """None when the error does not say, or says what is no delay."""
    found = getattr(error, "retry_after_s", None)
    if not isinstance(found, int | float) or isinstance(found, bool) or not found >= 0:
        return None
    return min(float(found), RETRY_AFTER_S_MAX)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001  # a __str__ of the user's may raise anything
        text = f"(its message can't be shown: {type(broken).__name__})"
    if not text and isinstance(error, asyncio.CancelledError):
        return _CANCELLED_ITSELF
    text = storable(text)
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    return text[: MESSAGE_CHARS_MAX - 1] + "…"


def _traceback(error: BaseException) -> str | None:
    """None when all of it happened inside Runnel: then the message says it all."""
    if isinstance(error, RunnelError) and error.says_all:
        return None
    user_part = _from_user_code(error.__traceback__)
    if user_part is None:
        return None
    lines = traceback.format_exception(type(error), error, user_part)
    text = storable("".join(lines))
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    return "…" + text[1 - TRACEBACK_CHARS_MAX :]


def _from_user_code(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if not name.startswith((_ENGINE, _IMPORT_MACHINERY)):
            return frames
        frames = frames.tb_next
    return None
