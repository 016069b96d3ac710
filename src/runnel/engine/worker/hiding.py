"""Keeps the values of secrets out of what a worker reports: errors, reasons, outputs."""

import msgspec

from runnel.core.json_types import Json
from runnel.core.retry import ErrorInfo
from runnel.ports.secrets import Secrets

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def without_secrets(info: ErrorInfo, secrets: Secrets) -> ErrorInfo:
    message = secrets.hide(info.message)
    traceback = None if info.traceback is None else secrets.hide(info.traceback)
    if message == info.message and traceback == info.traceback:
        return info
    return msgspec.structs.replace(info, message=message, traceback=traceback)


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
