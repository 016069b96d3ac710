"""Paths into JSON data, and the sentences for data that is not as an operation needs it."""

import re
from collections.abc import Mapping
from typing import Any

from runnel.core.json_types import Json
from runnel.errors import InputError
from runnel.handlers.shortening import short

ABSENT: Any = object()
MISSING_CHOICES = ("error", "null", "omit")
SHOWN_CHARS = 60
_POSITION = re.compile(r"-?[0-9]{1,18}")


def find(item: Json, path: str) -> Json:
    """The value at `path`; ABSENT when it leads nowhere."""
    value = item
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key, ABSENT)
        elif isinstance(value, list) and _POSITION.fullmatch(key):
            index = int(key)
            value = value[index] if -len(value) <= index < len(value) else ABSENT
        else:
            return ABSENT
    return value


def need(item: Json, path: str, operation: str | None, *, index: int | None = None) -> Json:
    value = find(item, path)
    if value is ABSENT:
        where = "data" if index is None else f"item {index}"
        has = f"; it has: {', '.join(list(item)[:10])}" if isinstance(item, dict) else ""
        raise refuse(operation, f"found no '{path}' in {where}{has}")
    return value


def items_of(data: Json, operation: str) -> list[Json]:
    if not isinstance(data, list):
        raise refuse(operation, f"expects data to be a list, got {shown(data)}")
    return data


def text_of(settings: Mapping[str, Json], key: str, operation: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise refuse(
            operation, f"expects {key} to be a path such as 'customer.name', got {value!r}"
        )
    return value


def refuse(operation: str | None, why: str) -> InputError:
    return InputError(f"data_processor {operation}: {why}")


def shown(value: Json) -> str:
    """A value in a message: its kind, and how it begins."""
    return f"{type(value).__name__} {short(repr(value), SHOWN_CHARS)}"
