"""The filters of the template language, their argument checks, and the kinds of JSON values."""

import json
import math
import re
from collections.abc import Callable, Mapping

import msgspec

from runnel.core.message_text import shorten
from runnel.core.templates.errors import (
    BUILT_BYTES_MAX,
    DIGITS_MAX,
    INTEGER_MAX,
    ITEMS_MAX,
    SHOWN_CHARS_MAX,
    TEXT_BYTES_MAX,
    MissingValueError,
    TemplateEvaluationError,
)
from runnel.core.values import Json, is_number

# -- values as text, and the limits on texts and lists ----------------------------------------

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)


def to_text(value: Json) -> str:
    """Returns a string unchanged and everything else as JSON."""
    return value if isinstance(value, str) else to_json(value)


def to_json(value: Json) -> str:
    """Returns the value as JSON.

    Encodes in chunks and stops at the size limit, because `[a, a, a]` may become many times larger
    than the value in memory.
    """
    chunks: list[str] = []
    bytes_remaining = TEXT_BYTES_MAX
    try:
        for chunk in _encoder.iterencode(value):
            bytes_remaining -= len(chunk)
            if bytes_remaining < 0:
                raise make_text_too_long_error()
            chunks.append(chunk)
    except ValueError as error:
        raise TemplateEvaluationError(f"a number that JSON can't hold: {error}") from error
    return check_text_size("".join(chunks))


def check_text_size(text: str) -> str:
    if len(text) > TEXT_BYTES_MAX or count_utf8_bytes(text) > TEXT_BYTES_MAX:
        raise make_text_too_long_error()
    return text


def check_list_size(items: list[Json]) -> list[Json]:
    if len(items) > ITEMS_MAX:
        raise TemplateEvaluationError(
            f"a list of {len(items):,} items; a filter takes and makes at most {ITEMS_MAX:,}"
        )
    return items


def count_utf8_bytes(text: str) -> int:
    """Returns the number of bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def make_text_too_long_error() -> TemplateEvaluationError:
    return TemplateEvaluationError(
        f"the text is longer than {TEXT_BYTES_MAX:,} bytes; pass the value on by itself, as one "
        "{{ … }} without text around it or a filter, so that it is not copied"
    )


# -- kinds of JSON values, and the `is …` tests ------------------------------------------------


def describe_kind(value: Json) -> str:
    """Returns the kind of the value for error messages, for example "a number"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


TYPE_TESTS: Mapping[str, Callable[[Json], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": is_number,
    "sequence": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
}


# -- argument checks: each function returns its value, or raises ---------------------------


def require_string(name: str, value: Json) -> str:
    if not isinstance(value, str):
        raise make_type_error(name, "a string", value)
    return value


def require_list(name: str, value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise make_type_error(name, "a list", value)
    return check_list_size(value)


def require_object(name: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise make_type_error(name, "an object", value)
    return value


def require_number(name: str, value: Json) -> Json:
    """Returns the value if it is a finite number, and within 64 bits if it is whole.

    Arithmetic on such a number can't fail.
    """
    if not is_number(value):
        raise make_type_error(name, "a number", value)
    fits = abs(value) <= INTEGER_MAX if isinstance(value, int) else math.isfinite(value)
    if not fits:
        raise TemplateEvaluationError(f"{name}: a number beyond 64 bits")
    return value


def require_items(name: str, value: Json) -> list[Json]:
    """Returns a list that is not empty.

    Raises MissingValueError for an empty list, so that `| first | default(0)` works.
    """
    items = require_list(name, value)
    if not items:
        raise MissingValueError("the list", key=name, found="empty")
    return items


def require_comparable(name: str, items: list[Json]) -> list[Json]:
    strings = sum(isinstance(item, str) for item in items)
    numbers = sum(map(is_number, items))
    if len(items) not in (strings, numbers):
        kinds = sorted({describe_kind(item) for item in items})
        raise TemplateEvaluationError(
            f"{name} expects only numbers or only strings, got a list of: {', '.join(kinds)}"
        )
    return items


def make_type_error(name: str, expected: str, value: Json) -> TemplateEvaluationError:
    got = f"'{shorten(value, SHOWN_CHARS_MAX)}'" if isinstance(value, str) else describe_kind(value)
    return TemplateEvaluationError(f"{name} expects {expected}, got {got}")


_INTEGER_PATTERN = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_DECIMAL_PATTERN = re.compile(
    r"\s*[+-]?(?:[0-9]{1,99}\.?[0-9]{0,99}|\.[0-9]{1,99})(?:[eE][+-]?[0-9]{1,4})?\s*"
)


class TemplateFilter(msgspec.Struct, frozen=True):
    """A filter of the template language.

    If `builds_new_value`, its result counts against the size limit of an evaluation.
    """

    apply: Callable[..., Json]
    arguments_min: int = 0
    arguments_max: int = 0
    builds_new_value: bool = False


def _length(value: Json) -> int:
    if not isinstance(value, str | list | dict):
        raise make_type_error("length", "a string, a list or an object", value)
    return len(value)


def _upper(value: Json) -> str:
    return check_text_size(require_string("upper", value).upper())


def _lower(value: Json) -> str:
    return check_text_size(require_string("lower", value).lower())


def _trim(value: Json) -> str:
    return check_text_size(require_string("trim", value).strip())


def _replace(value: Json, old: Json, new: Json) -> str:
    text, old, new = (require_string("replace", part) for part in (value, old, new))
    if not old:
        raise TemplateEvaluationError("replace expects a text to search for, got an empty string")
    if len(text) + text.count(old) * (len(new) - len(old)) > TEXT_BYTES_MAX:
        raise make_text_too_long_error()
    return check_text_size(text.replace(old, new))


def _split(value: Json, separator: Json = None) -> list[Json]:
    text = check_text_size(require_string("split", value))
    if separator is None:
        return check_list_size(text.split())
    if separator == "":
        raise TemplateEvaluationError("split expects a separator, got an empty string")
    return check_list_size(text.split(require_string("split", separator)))


def _join(value: Json, separator: Json = "") -> str:
    items = require_list("join", value)
    between = require_string("join", separator)
    bytes_remaining = TEXT_BYTES_MAX - len(between) * (len(items) - 1)
    pieces: list[str] = []
    for item in items:
        pieces.append(to_text(item))
        bytes_remaining -= len(pieces[-1])
        if bytes_remaining < 0:
            raise make_text_too_long_error()
    return check_text_size(between.join(pieces))


def _first(value: Json) -> Json:
    return require_items("first", value)[0]


def _last(value: Json) -> Json:
    return require_items("last", value)[-1]


def _min(value: Json) -> Json:
    return min(require_comparable("min", require_items("min", value)))


def _max(value: Json) -> Json:
    return max(require_comparable("max", require_items("max", value)))


def _sort(value: Json) -> list[Json]:
    return sorted(require_comparable("sort", require_list("sort", value)))


def _unique(value: Json) -> list[Json]:
    # The keys are JSON texts, because objects have no hash and comparing all pairs would take n²
    # steps.
    seen: dict[str, Json] = {}
    bytes_remaining = BUILT_BYTES_MAX
    for item in require_list("unique", value):
        text = to_json(item)
        bytes_remaining -= len(text)
        if bytes_remaining < 0:
            raise TemplateEvaluationError(f"unique takes at most {BUILT_BYTES_MAX:,} bytes of JSON")
        seen.setdefault(text, item)
    return list(seen.values())


def _sum(value: Json) -> Json:
    items = require_list("sum", value)
    return require_number("sum", sum(require_number("sum", item) for item in items))


def _keys(value: Json) -> list[Json]:
    return check_list_size(list(require_object("keys", value)))


def _values(value: Json) -> list[Json]:
    return check_list_size(list(require_object("values", value).values()))


def _int(value: Json) -> int:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return int(require_number("int", int(require_number("int", value))))
    if not _INTEGER_PATTERN.fullmatch(value):
        raise make_type_error("int", "a whole number of at most 19 digits", value)
    return int(require_number("int", int(value)))


def _float(value: Json) -> float:
    if not isinstance(value, str):
        return float(require_number("float", value))
    if not _DECIMAL_PATTERN.fullmatch(value):
        raise make_type_error("float", "a number such as 1.5", value)
    return float(require_number("float", float(value)))


def _round(value: Json, digits: Json = None) -> Json:
    number = require_number("round", value)
    if digits is None:
        return require_number("round", round(number))
    if not isinstance(digits, int) or not 0 <= digits <= DIGITS_MAX:
        raise make_type_error("round", f"0 to {DIGITS_MAX} digits", digits)
    return round(number, digits)


def _abs(value: Json) -> Json:
    return abs(require_number("abs", value))


FILTERS: Mapping[str, TemplateFilter] = {
    "abs": TemplateFilter(_abs),
    "count": TemplateFilter(_length),
    "first": TemplateFilter(_first),
    "float": TemplateFilter(_float),
    "int": TemplateFilter(_int),
    "join": TemplateFilter(_join, arguments_max=1, builds_new_value=True),
    "keys": TemplateFilter(_keys, builds_new_value=True),
    "last": TemplateFilter(_last),
    "length": TemplateFilter(_length),
    "lower": TemplateFilter(_lower, builds_new_value=True),
    "max": TemplateFilter(_max),
    "min": TemplateFilter(_min),
    "replace": TemplateFilter(_replace, arguments_min=2, arguments_max=2, builds_new_value=True),
    "round": TemplateFilter(_round, arguments_max=1),
    "sort": TemplateFilter(_sort, builds_new_value=True),
    "split": TemplateFilter(_split, arguments_max=1, builds_new_value=True),
    "string": TemplateFilter(to_text, builds_new_value=True),
    "sum": TemplateFilter(_sum),
    "tojson": TemplateFilter(to_json, builds_new_value=True),
    "trim": TemplateFilter(_trim, builds_new_value=True),
    "unique": TemplateFilter(_unique, builds_new_value=True),
    "upper": TemplateFilter(_upper, builds_new_value=True),
    "values": TemplateFilter(_values, builds_new_value=True),
}
