"""Keeps the values of secrets out of what a worker reports: errors, reasons, outputs."""

import re
from collections.abc import Sequence

import msgspec

from runnel.core.log_lines import LOG_LINE_CHARS_MAX, LogLine
from runnel.core.retry import ErrorInfo
from runnel.engine.worker.failures import storable
from runnel.ports.secrets import Secrets

# Possessive: it never goes back, which would take memory for each character of a long text.
_TEXT_OR_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*+')
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPES = {'\\"': '"', "\\n": "\n", "\\r": "\r", "\\t": "\t", "\\b": "\b", "\\f": "\f"}
_BACKSLASH = "\0"  # stands for one meanwhile: JSON never has it as it is

_decode = msgspec.json.Decoder(str).decode
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
    """Every text of the JSON by itself, keys too, and numbers that are a secret.

    Not decoded as a whole: it may be nested as deeply as a service likes.
    """
    text = data.decode()
    plain = _plain(text)
    if secrets.hide(plain) == plain:  # 20 times as fast as a look at each text
        return data
    return _TEXT_OR_NUMBER.sub(lambda found: _hidden(found[0], secrets), text).encode()


def _hidden(written: str, secrets: Secrets) -> str:
    if written[0] != '"':
        return _hidden_number(written, secrets)
    text = _decode(written)
    shown = secrets.hide(text)
    return written if shown == text else _encode(shown).decode()


def _hidden_number(written: str, secrets: Secrets) -> str:
    """Only as a whole: the same digits inside of a longer number are not the secret."""
    shown = secrets.hide(written.removesuffix(".0"))
    return written if any(map(str.isdigit, shown)) else _encode(shown).decode()


def _plain(text: str) -> str:
    """JSON with its texts as they are meant, between quotes that mean nothing any more."""
    if "\\" not in text:
        return text
    text = text.replace("\\\\", _BACKSLASH)
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return _CODE.sub(lambda found: chr(int(found[1], 16)), text).replace(_BACKSLASH, "\\")
