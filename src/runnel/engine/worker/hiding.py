"""Keeps the values of secrets out of what a worker reports: errors, reasons, outputs."""

from collections.abc import Sequence

import msgspec

from runnel.core.json_types import Json
from runnel.core.log_lines import LOG_LINE_CHARS_MAX, LogLine
from runnel.core.retry import ErrorInfo
from runnel.engine.worker.failures import storable
from runnel.ports.secrets import Secrets

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def without_secrets(info: ErrorInfo, secrets: Secrets) -> ErrorInfo:
    message = secrets.hide(info.message)
    traceback = None if info.traceback is None else secrets.hide(info.traceback)
    if message == info.message and traceback == info.traceback:
        return info
    return msgspec.structs.replace(info, message=message, traceback=traceback)


def lines_without_secrets(lines: Sequence[LogLine], secrets: Secrets) -> tuple[LogLine, ...]:
    """Cut afterwards: half a secret would not be found."""
    return tuple(LogLine(line.at, line.level, _cut(secrets.hide(line.text))) for line in lines)


def _cut(text: str) -> str:
    short = text if len(text) <= LOG_LINE_CHARS_MAX else text[: LOG_LINE_CHARS_MAX - 1] + "…"
    return storable(short)


def output_without_secrets(data: bytes, secrets: Secrets) -> bytes:
    """Looks into the JSON only if a secret is somewhere in it."""
    text = data.decode()
    return data if secrets.hide(text) == text else _encode(_hidden(_decode(data), secrets))


def _hidden(value: Json, secrets: Secrets) -> Json:
    if isinstance(value, str):
        return secrets.hide(value)
    if isinstance(value, dict):
        return {secrets.hide(key): _hidden(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, secrets) for each in value]
    return value
