"""What a filter takes: each function returns the value it was given, or refuses it."""

import math

from runnel.core.json_types import Json
from runnel.core.templates.failures import (
    MissingValueError,
    TemplateEvaluationError,
    shorten,
)
from runnel.core.templates.kinds import is_number, kind
from runnel.core.templates.limits import INTEGER_MAX
from runnel.core.templates.text import bounded_list


def a_string(name: str, value: Json) -> str:
    if not isinstance(value, str):
        raise unfit(name, "a string", value)
    return value


def a_list(name: str, value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise unfit(name, "a list", value)
    return bounded_list(value)


def an_object(name: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise unfit(name, "an object", value)
    return value


def a_number(name: str, value: Json) -> Json:
    """Finite and, if whole, within 64 bits, so that no arithmetic on it can fail."""
    if not is_number(value):
        raise unfit(name, "a number", value)
    fits = abs(value) <= INTEGER_MAX if isinstance(value, int) else math.isfinite(value)
    if not fits:
        raise TemplateEvaluationError(f"{name}: a number beyond 64 bits")
    return value


def some_items(name: str, value: Json) -> list[Json]:
    """A missing value, not an error of evaluation, when empty: `| first | default(0)` works."""
    items = a_list(name, value)
    if not items:
        raise MissingValueError("the list", key=name, found="empty")
    return items


def comparable(name: str, items: list[Json]) -> list[Json]:
    strings = sum(isinstance(item, str) for item in items)
    numbers = sum(map(is_number, items))
    if len(items) not in (strings, numbers):
        kinds = sorted({kind(item) for item in items})
        raise TemplateEvaluationError(
            f"{name} expects only numbers or only strings, got a list of: {', '.join(kinds)}"
        )
    return items


def unfit(name: str, wanted: str, value: Json) -> TemplateEvaluationError:
    got = f"'{shorten(value)}'" if isinstance(value, str) else kind(value)
    return TemplateEvaluationError(f"{name} expects {wanted}, got {got}")
