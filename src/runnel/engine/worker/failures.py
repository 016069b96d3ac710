"""An exception of user code as it travels: bounded, and without the engine's own frames."""

import traceback
from pathlib import Path
from types import TracebackType

from runnel.core.retry import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, ErrorInfo

_ENGINE = str(Path(__file__).parents[2])
_IMPORT_MACHINERY = "<frozen importlib"


def error_info(error: BaseException) -> ErrorInfo:
    kind = type(error)
    retryable = getattr(error, "retryable", None)
    return ErrorInfo(
        type=kind.__name__,
        message=_message(error),
        types=tuple(base.__name__ for base in kind.__mro__ if base not in (object, BaseException)),
        retryable=retryable if isinstance(retryable, bool) else None,
        traceback=_traceback(error),
    )


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001  # a __str__ of the user's may raise anything
        text = f"(its message can't be shown: {type(broken).__name__})"
    if len(text) <= MESSAGE_CHARS_MAX:
        return text
    return text[: MESSAGE_CHARS_MAX - 1] + "…"


def _traceback(error: BaseException) -> str | None:
    """None when all of it happened inside Runnel: then the message says it all."""
    user_part = _from_user_code(error.__traceback__)
    if user_part is None:
        return None
    lines = traceback.format_exception(type(error), error, user_part)
    text = "".join(lines)
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
