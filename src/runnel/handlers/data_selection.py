"""pick, map, filter, merge and sort: operations that keep or reshape items."""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne

from runnel.core.json_types import Json
from runnel.handlers.data_paths import (
    ABSENT,
    MISSING_CHOICES,
    find,
    items_of,
    need,
    refuse,
    shown,
    text_of,
)

Settings = Mapping[str, Json]


def pick(data: Json, settings: Settings) -> Json:
    fields, missing = _fields(settings, "pick"), _missing(settings, "pick")
    if isinstance(data, dict):
        return _picked(data, fields, missing, "pick", None)
    return [
        _picked(item, fields, missing, "pick", index)
        for index, item in enumerate(items_of(data, "pick"))
    ]


def map_items(data: Json, settings: Settings) -> Json:
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


def filter_items(data: Json, settings: Settings) -> Json:
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


def merge(data: Json, settings: Settings) -> Json:
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


def sort_items(data: Json, settings: Settings) -> Json:
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


def _fields(settings: Settings, operation: str) -> dict[str, str]:
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


def _missing(settings: Settings, operation: str) -> str:
    missing = settings.get("missing", "error")
    if missing not in MISSING_CHOICES:
        raise refuse(
            operation, f"expects missing to be one of {', '.join(MISSING_CHOICES)}, got {missing!r}"
        )
    return str(missing)


def _flag(settings: Settings, key: str, operation: str) -> bool:
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
