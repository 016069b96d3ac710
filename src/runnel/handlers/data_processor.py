"""`data_processor`: small reshaping of JSON data between two nodes, without code.

`operation` and `data` are always given; `data` is a list unless the table says otherwise. A field
is a path such as `total` or `customer.address.city`, with numbers for positions in lists. What a
path does not find is an error, unless `missing` says `null` or `omit`.

pick       an object, or a list of objects, with only some fields
           fields: list of paths, or object of new name to path; missing
map        each item of a list as the value at `field`, or as a new object of `fields`
           field: path; fields: as above; set: object of constants, with fields; missing
filter     the items of a list for which a condition holds, or several
           field, op, value; where: list of such objects; match: all (default) or any
merge      a list of objects as one, where the last wins; a list of lists as one list
           deep: true merges objects inside objects too
aggregate  one value for a whole list, or an object of several
           function, field; aggregates: object of name to {function, field}
sort       a list in order; equal items keep theirs
           by: path or list of paths, none for plain items; descending: true or false
group      an object of key to items, or of key to aggregates of its items
           by: path; aggregates: as above

op: == != < <= > >= in not_in contains exists missing. function: count sum avg min max first last
unique list; each takes the values at `field`, or the items themselves.
"""

import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import msgspec

from runnel.authoring.calls import Call, Mode
from runnel.core.validation.handler_settings import OPERATIONS
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers.permissions import short

# Paths into JSON data, and the sentences for data that is not as an operation needs it.

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


# aggregate and group: operations that make few values out of many.

AggregateSettings = Mapping[str, Json]


def aggregate(data: Json, settings: AggregateSettings) -> Json:
    items = items_of(data, "aggregate")
    if "aggregates" in settings:
        if "function" in settings or "field" in settings:
            raise refuse("aggregate", "expects either aggregates, or function and field")
        return _all(items, settings["aggregates"], "aggregate")
    return _one(items, settings, "aggregate")


def group(data: Json, settings: AggregateSettings) -> Json:
    groups: dict[str, list[Json]] = {}
    by = text_of(settings, "by", "group")
    for index, item in enumerate(items_of(data, "group")):
        groups.setdefault(_key(need(item, by, "group", index=index)), []).append(item)
    if "aggregates" not in settings:
        return groups
    return {key: _all(items, settings["aggregates"], "group") for key, items in groups.items()}


def _key(value: Json) -> str:
    """A text as it is; anything else as JSON writes it, because keys of objects are texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise refuse("group", f"expects by to lead to a plain value, got {shown(value)}")
    return msgspec.json.encode(value).decode()


def _all(items: list[Json], aggregates: Json, operation: str) -> dict[str, Json]:
    if not isinstance(aggregates, dict) or not aggregates:
        raise refuse(
            operation, "expects aggregates to be an object of name to {function: …, field: …}"
        )
    return {name: _one(items, wanted, operation) for name, wanted in aggregates.items()}


def _one(items: list[Json], wanted: Json, operation: str) -> Json:
    if not isinstance(wanted, dict) or not set(wanted) <= {"function", "field"}:
        raise refuse(operation, f"knows function and field in an aggregate, got {shown(wanted)}")
    name = wanted.get("function")
    if not isinstance(name, str) or name not in _FUNCTIONS:
        known = ", ".join(_FUNCTIONS)
        raise refuse(operation, f"expects function to be one of {known}, got {name!r}")
    path = text_of(wanted, "field", operation) if "field" in wanted else None
    values = [
        item if path is None else need(item, path, operation, index=index)
        for index, item in enumerate(items)
    ]
    try:
        return _FUNCTIONS[name](values)
    except (TypeError, OverflowError, RecursionError) as error:
        raise refuse(operation, f"can't take the {name} of these values: {error}") from None


def _sum(values: list[Json]) -> Json:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{shown(value)} is not a number")
    return sum(values)


def _average(values: list[Json]) -> Json:
    return _sum(values) / len(values) if values else None


def _unique(values: list[Json]) -> list[Json]:
    seen: dict[bytes, Json] = {}
    for value in values:
        seen.setdefault(msgspec.json.encode(value, order="sorted"), value)
    return list(seen.values())


_FUNCTIONS: Mapping[str, Callable[[list[Json]], Json]] = {
    "count": len,
    "sum": _sum,
    "avg": _average,
    "min": lambda values: min(values) if values else None,
    "max": lambda values: max(values) if values else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "unique": _unique,
    "list": list,
}


# pick, map, filter, merge and sort: operations that keep or reshape items.

SelectionSettings = Mapping[str, Json]


def pick(data: Json, settings: SelectionSettings) -> Json:
    fields, missing = _fields(settings, "pick"), _missing(settings, "pick")
    if isinstance(data, dict):
        return _picked(data, fields, missing, "pick", None)
    return [
        _picked(item, fields, missing, "pick", index)
        for index, item in enumerate(items_of(data, "pick"))
    ]


def map_items(data: Json, settings: SelectionSettings) -> Json:
    items, missing = items_of(data, "map"), _missing(settings, "map")
    if ("field" in settings) == ("fields" in settings):
        raise refuse("map", "expects either field or fields")
    if "field" in settings:
        if "set" in settings:
            raise refuse("map", "can use set only with fields")
        return _plucked(items, text_of(settings, "field", "map"), missing)
    constants = settings.get("set", {})
    if not isinstance(constants, dict):
        raise refuse("map", f"expects set to be an object, got {shown(constants)}")
    fields = _fields(settings, "map")
    return [
        {**_picked(item, fields, missing, "map", index), **constants}
        for index, item in enumerate(items)
    ]


def filter_items(data: Json, settings: SelectionSettings) -> Json:
    items = items_of(data, "filter")
    match = settings.get("match", "all")
    if match not in ("all", "any"):
        raise refuse("filter", f"expects match to be all or any, got {match!r}")
    if "where" in settings and any(key in settings for key in ("field", "op", "value")):
        raise refuse("filter", "expects either where, or field, op and value")
    conditions = settings.get("where", [{k: v for k, v in settings.items() if k != "match"}])
    if not isinstance(conditions, list) or not conditions:
        raise refuse("filter", f"expects where to be a list of conditions, got {shown(conditions)}")
    tests = [_test(condition) for condition in conditions]
    joined = all if match == "all" else any
    return [item for item in items if joined(test(item) for test in tests)]


def merge(data: Json, settings: SelectionSettings) -> Json:
    parts, deep = items_of(data, "merge"), _flag(settings, "deep", "merge")
    if all(isinstance(part, list) for part in parts) and parts:
        return [item for part in parts for item in part]
    merged: dict[str, Json] = {}
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            raise refuse(
                "merge",
                f"expects objects only, or lists only; item {index} is {shown(part)}",
            )
        if deep:
            _merge_into(merged, part)
        else:
            merged.update(part)
    return merged


def sort_items(data: Json, settings: SelectionSettings) -> Json:
    items = items_of(data, "sort")
    by = settings.get("by", [])
    paths = [by] if isinstance(by, str) else by
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise refuse("sort", f"expects by to be a path or a list of paths, got {shown(by)}")
    keys = [
        tuple(need(item, path, "sort", index=index) for path in paths) if paths else (item,)
        for index, item in enumerate(items)
    ]
    for column in zip(*keys, strict=True):
        _comparable(column)
    order = sorted(
        range(len(items)), key=keys.__getitem__, reverse=_flag(settings, "descending", "sort")
    )
    return [items[index] for index in order]


def _fields(settings: SelectionSettings, operation: str) -> dict[str, str]:
    """New names to paths."""
    fields = settings.get("fields")
    if isinstance(fields, list) and all(isinstance(path, str) for path in fields):
        fields = {path: path for path in fields}
    if not isinstance(fields, dict) or not fields:
        raise refuse(operation, "expects fields to be a list of paths, or an object of new to path")
    for name, path in fields.items():
        if not isinstance(path, str) or not path:
            raise refuse(operation, f"expects fields.{name} to be a path, got {shown(path)}")
    return fields


def _missing(settings: SelectionSettings, operation: str) -> str:
    missing = settings.get("missing", "error")
    if missing not in MISSING_CHOICES:
        raise refuse(
            operation, f"expects missing to be one of {', '.join(MISSING_CHOICES)}, got {missing!r}"
        )
    return str(missing)


def _flag(settings: SelectionSettings, key: str, operation: str) -> bool:
    value = settings.get(key, False)
    if not isinstance(value, bool):
        raise refuse(operation, f"expects {key} to be true or false, got {value!r}")
    return value


def _picked(
    item: Json, fields: Mapping[str, str], missing: str, operation: str, index: int | None
) -> dict[str, Json]:
    picked: dict[str, Json] = {}
    for name, path in fields.items():
        value = find(item, path)
        if value is ABSENT and missing == "omit":
            continue
        if value is ABSENT and missing == "null":
            value = None
        picked[name] = need(item, path, operation, index=index) if value is ABSENT else value
    return picked


def _plucked(items: list[Json], path: str, missing: str) -> list[Json]:
    plucked = []
    for index, item in enumerate(items):
        value = find(item, path)
        if value is ABSENT and missing == "error":
            value = need(item, path, "map", index=index)
        if value is not ABSENT:
            plucked.append(value)
        elif missing == "null":
            plucked.append(None)
    return plucked


def _test(condition: Json) -> Callable[[Json], bool]:
    if not isinstance(condition, dict):
        raise refuse("filter", f"expects a condition to be an object, got {shown(condition)}")
    for key in condition:
        if key not in {"field", "op", "value"}:
            raise refuse("filter", f"knows field, op and value in a condition, not '{key}'")
    op, value = condition.get("op", "=="), condition.get("value", ABSENT)
    path = text_of(condition, "field", "filter") if "field" in condition else None
    if op in ("exists", "missing"):
        return lambda item: (_at(item, path) is not ABSENT) is (op == "exists")
    if not isinstance(op, str) or op not in _COMPARISONS:
        known = ", ".join([*_COMPARISONS, "exists", "missing"])
        raise refuse("filter", f"expects op to be one of {known}, got {op!r}")
    if value is ABSENT:
        raise refuse("filter", f"needs a value to compare with by '{op}'")
    return lambda item: _holds(_at(item, path), op, value)


def _at(item: Json, path: str | None) -> Json:
    return item if path is None else find(item, path)


def _holds(found: Json, op: str, value: Json) -> bool:
    """What is absent fits no comparison but `!=` and `not_in`."""
    if found is ABSENT:
        return op in {"!=", "not_in"}
    try:
        return bool(_COMPARISONS[op](found, value))
    except (TypeError, RecursionError):
        raise refuse("filter", f"can't compare {shown(found)} {op} {shown(value)}") from None


_COMPARISONS: Mapping[str, Callable[[Json, Json], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": lambda found, value: found in value,
    "not_in": lambda found, value: found not in value,
    "contains": lambda found, value: value in found,
}


def _merge_into(merged: dict[str, Json], part: Mapping[str, Json]) -> None:
    """Changes `merged`, all of which is its own; takes as long as the part, however deep it is."""
    waiting = [(merged, part)]
    while waiting:
        into, more = waiting.pop()
        for key, value in more.items():
            if not isinstance(value, dict):
                into[key] = value
                continue
            if not isinstance(into.get(key), dict):
                into[key] = {}
            waiting.append((into[key], value))


def _comparable(column: tuple[Json, ...]) -> None:
    """Numbers with numbers, texts with texts: anything else has no order that all agree on."""
    kinds = {
        "number" if isinstance(value, int | float) else type(value).__name__ for value in column
    }
    if len(kinds) > 1 or not kinds <= {"number", "str"}:
        raise refuse("sort", f"orders numbers, or texts, but not {' and '.join(sorted(kinds))}")


# Above this many items, the work is done in a thread: the loop has others to serve.
ITEMS_ON_LOOP_MAX = 1_000


APPLY: Mapping[str, Callable[[Json, Mapping[str, Json]], Json]] = {
    "pick": pick,
    "map": map_items,
    "filter": filter_items,
    "merge": merge,
    "aggregate": aggregate,
    "sort": sort_items,
    "group": group,
}


def plan(config: Json) -> Call:
    data = config.get("data")
    is_small = not isinstance(data, list | dict) or len(data) <= ITEMS_ON_LOOP_MAX
    mode = Mode.LOOP if is_small else Mode.THREAD
    return Call(function=process, mode=mode, positional=(config,))


def process(config: Mapping[str, Json]) -> Json:
    """Raises InputError, in one sentence, for settings or data that do not fit the operation."""
    name = config.get("operation")
    if not isinstance(name, str) or name not in APPLY:
        raise InputError(
            f"data_processor: expected operation to be one of {', '.join(APPLY)}, got {name!r}"
        )
    if "data" not in config:
        raise refuse(name, "needs 'data', for example \"{{ fetch.rows }}\"")
    settings = {key: value for key, value in config.items() if key not in {"operation", "data"}}
    for key in settings:
        if key not in OPERATIONS[name]:
            raise refuse(name, f"has no setting '{key}', only {', '.join(OPERATIONS[name])}")
    return APPLY[name](config["data"], settings)
