"""Masks secrets in the errors, log lines and outputs that a worker reports."""

import re
from collections.abc import Sequence

import msgspec

from runnel.core.retry import ErrorInfo
from runnel.core.values import LOG_LINE_CHARS_MAX, TaskLogLine
from runnel.engine.worker.outputs import escape_text
from runnel.ports.clock import Secrets

# The quantifiers are possessive, because backtracking would take memory for each character of a
# long text.
_TEXT_OR_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*+')
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPES = {'\\"': '"', "\\n": "\n", "\\r": "\r", "\\t": "\t", "\\b": "\b", "\\f": "\f"}
_BACKSLASH = "\0"  # stands for an escaped backslash: JSON never contains an unescaped NUL

_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def redact_error(info: ErrorInfo, secrets: Secrets) -> ErrorInfo:
    message = secrets.redact(info.message)
    redacted_traceback = None if info.traceback is None else secrets.redact(info.traceback)
    if message == info.message and redacted_traceback == info.traceback:
        return info
    return msgspec.structs.replace(info, message=message, traceback=redacted_traceback)


def redact_log_lines(lines: Sequence[TaskLogLine], secrets: Secrets) -> tuple[TaskLogLine, ...]:
    """Masks secrets in the lines and then shortens the lines.

    If the lines were shortened first, half a secret would not be recognized.
    """
    return tuple(
        TaskLogLine(line.at, line.level, _shorten_line(secrets.redact(line.text))) for line in lines
    )


def _shorten_line(text: str) -> str:
    short = text if len(text) <= LOG_LINE_CHARS_MAX else text[: LOG_LINE_CHARS_MAX - 1] + "…"
    return escape_text(short)


def redact_output(data: bytes, secrets: Secrets) -> bytes:
    """Masks secrets in every text of the JSON, keys included, and masks numbers that equal a
    secret.

    The JSON is not decoded as a whole, because it may be nested arbitrarily deep.
    """
    text = data.decode()
    plain = _unescape_json(text)
    if secrets.redact(plain) == plain:  # one check of all texts is 20 times as fast as one for each
        return data
    return _TEXT_OR_NUMBER.sub(lambda match: _redact_literal(match[0], secrets), text).encode()


def _redact_literal(written: str, secrets: Secrets) -> str:
    if written[0] != '"':
        return _redact_number(written, secrets)
    text = _decode(written)
    shown = secrets.redact(text)
    return written if shown == text else _encode(shown).decode()


def _redact_number(written: str, secrets: Secrets) -> str:
    """Masks a number if the whole number is a secret.

    A number that only contains the digits of a secret stays.
    """
    shown = secrets.redact(written.removesuffix(".0"))
    return written if any(map(str.isdigit, shown)) else _encode(shown).decode()


def _unescape_json(text: str) -> str:
    """Returns the JSON with its texts unescaped. The result is no longer valid JSON."""
    if "\\" not in text:
        return text
    text = text.replace("\\\\", _BACKSLASH)
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return _UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text).replace(_BACKSLASH, "\\")
