"""The filters of the language. Each takes JSON, makes JSON, and refuses what does not fit."""

import json
import math
import re
from collections.abc import Callable, Mapping

import msgspec

from runnel.core.templates.errors import (
    BUILT_BYTES_MAX,
    DIGITS_MAX,
    INTEGER_MAX,
    ITEMS_MAX,
    TEXT_BYTES_MAX,
    MissingValueError,
    TemplateEvaluationError,
    shorten,
)
from runnel.core.values import Json

# Values as text, and the bounds on texts and lists that a template builds.

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)


def as_text(value: Json) -> str:
    """A string as it is, everything else as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Json) -> str:
    """Piece by piece, because `[a, a, a]` may be many times larger than what is in memory."""
    chunks: list[str] = []
    left = TEXT_BYTES_MAX
    try:
        for chunk in _encoder.iterencode(value):
            left -= len(chunk)
            if left < 0:
                raise too_long()
            chunks.append(chunk)
    except ValueError as error:
        raise TemplateEvaluationError(f"a number that JSON can't hold: {error}") from error
    return bounded_text("".join(chunks))


def bounded_text(text: str) -> str:
    if len(text) > TEXT_BYTES_MAX or size_of(text) > TEXT_BYTES_MAX:
        raise too_long()
    return text


def bounded_list(items: list[Json]) -> list[Json]:
    if len(items) > ITEMS_MAX:
        raise TemplateEvaluationError(
            f"a list of {len(items):,} items; a filter takes and makes at most {ITEMS_MAX:,}"
        )
    return items


def size_of(text: str) -> int:
    """Bytes of its UTF-8 form."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def too_long() -> TemplateEvaluationError:
    return TemplateEvaluationError(
        f"the text is longer than {TEXT_BYTES_MAX:,} bytes; pass the value on by itself, as one "
        "{{ … }} without text around it or a filter, so that it is not copied"
    )


# What a JSON value is, in the words of the messages, and the `is …` tests on it.


def kind(value: Json) -> str:
    """As it reads after 'is' or 'got'."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def is_number(value: Json) -> bool:
    """True and False are no numbers here, as in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS: Mapping[str, Callable[[Json], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": is_number,
    "sequence": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
}


# What a filter takes: each function returns the value it was given, or refuses it.


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


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_DECIMAL = re.compile(
    r"\s*[+-]?(?:[0-9]{1,99}\.?[0-9]{0,99}|\.[0-9]{1,99})(?:[eE][+-]?[0-9]{1,4})?\s*"
)


class Filter(msgspec.Struct, frozen=True):
    """`builds` tells that the result is new: it counts against what an evaluation may build."""

    apply: Callable[..., Json]
    arguments_min: int = 0
    arguments_max: int = 0
    builds: bool = False


def _length(value: Json) -> int:
    if not isinstance(value, str | list | dict):
        raise unfit("length", "a string, a list or an object", value)
    return len(value)


def _upper(value: Json) -> str:
    return bounded_text(a_string("upper", value).upper())


def _lower(value: Json) -> str:
    return bounded_text(a_string("lower", value).lower())


def _trim(value: Json) -> str:
    return bounded_text(a_string("trim", value).strip())


def _replace(value: Json, old: Json, new: Json) -> str:
    text, old, new = (a_string("replace", part) for part in (value, old, new))
    if not old:
        raise TemplateEvaluationError("replace expects a text to look for, got an empty string")
    if len(text) + text.count(old) * (len(new) - len(old)) > TEXT_BYTES_MAX:
        raise too_long()
    return bounded_text(text.replace(old, new))


def _split(value: Json, separator: Json = None) -> list[Json]:
    text = bounded_text(a_string("split", value))
    if separator is None:
        return bounded_list(text.split())
    if separator == "":
        raise TemplateEvaluationError("split expects a separator, got an empty string")
    return bounded_list(text.split(a_string("split", separator)))


def _join(value: Json, separator: Json = "") -> str:
    items = a_list("join", value)
    between = a_string("join", separator)
    left = TEXT_BYTES_MAX - len(between) * (len(items) - 1)
    pieces: list[str] = []
    for item in items:
        pieces.append(as_text(item))
        left -= len(pieces[-1])
        if left < 0:
            raise too_long()
    return bounded_text(between.join(pieces))


def _first(value: Json) -> Json:
    return some_items("first", value)[0]


def _last(value: Json) -> Json:
    return some_items("last", value)[-1]


def _min(value: Json) -> Json:
    return min(comparable("min", some_items("min", value)))


def _max(value: Json) -> Json:
    return max(comparable("max", some_items("max", value)))


def _sort(value: Json) -> list[Json]:
    return sorted(comparable("sort", a_list("sort", value)))


def _unique(value: Json) -> list[Json]:
    # By JSON text: objects have no hash, and comparing each with each would take n² steps.
    seen: dict[str, Json] = {}
    left = BUILT_BYTES_MAX
    for item in a_list("unique", value):
        text = as_json(item)
        left -= len(text)
        if left < 0:
            raise TemplateEvaluationError(f"unique takes at most {BUILT_BYTES_MAX:,} bytes of JSON")
        seen.setdefault(text, item)
    return list(seen.values())


def _sum(value: Json) -> Json:
    items = a_list("sum", value)
    return a_number("sum", sum(a_number("sum", item) for item in items))


def _keys(value: Json) -> list[Json]:
    return bounded_list(list(an_object("keys", value)))


def _values(value: Json) -> list[Json]:
    return bounded_list(list(an_object("values", value).values()))


def _int(value: Json) -> int:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return int(a_number("int", int(a_number("int", value))))
    if not _WHOLE.fullmatch(value):
        raise unfit("int", "a whole number of at most 19 digits", value)
    return int(a_number("int", int(value)))


def _float(value: Json) -> float:
    if not isinstance(value, str):
        return float(a_number("float", value))
    if not _DECIMAL.fullmatch(value):
        raise unfit("float", "a number such as 1.5", value)
    return float(a_number("float", float(value)))


def _round(value: Json, digits: Json = None) -> Json:
    number = a_number("round", value)
    if digits is None:
        return a_number("round", round(number))
    if not isinstance(digits, int) or not 0 <= digits <= DIGITS_MAX:
        raise unfit("round", f"0 to {DIGITS_MAX} digits", digits)
    return round(number, digits)


def _abs(value: Json) -> Json:
    return abs(a_number("abs", value))


FILTERS: Mapping[str, Filter] = {
    "abs": Filter(_abs),
    "count": Filter(_length),
    "first": Filter(_first),
    "float": Filter(_float),
    "int": Filter(_int),
    "join": Filter(_join, arguments_max=1, builds=True),
    "keys": Filter(_keys, builds=True),
    "last": Filter(_last),
    "length": Filter(_length),
    "lower": Filter(_lower, builds=True),
    "max": Filter(_max),
    "min": Filter(_min),
    "replace": Filter(_replace, arguments_min=2, arguments_max=2, builds=True),
    "round": Filter(_round, arguments_max=1),
    "sort": Filter(_sort, builds=True),
    "split": Filter(_split, arguments_max=1, builds=True),
    "string": Filter(as_text, builds=True),
    "sum": Filter(_sum),
    "tojson": Filter(as_json, builds=True),
    "trim": Filter(_trim, builds=True),
    "unique": Filter(_unique, builds=True),
    "upper": Filter(_upper, builds=True),
    "values": Filter(_values, builds=True),
}
