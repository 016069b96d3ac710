"""The handler `data_processor`: reshapes JSON data between two nodes, without code.

Without `operation`, the output is the config: the handler passes its values on. An operation
requires `data`. `data` is a list; only `pick` also accepts an object. A field
is a path such as `total` or `customer.address.city`; numbers are positions in lists. A path that
does not exist is an error, unless `missing` is `null` or `omit`.

pick       keeps some fields of an object, or of each object of a list
           fields: list of paths, or object of new name to path; missing
map        turns each item into the value at `field`, or into a new object of `fields`
           field: path; fields: as for pick; set: object of constants to add to `fields`; missing
filter     keeps the items that satisfy a condition, or several conditions
           field, op, value; where: list of such objects; match: all (default) or any
merge      merges a list of objects, where later objects win; or concatenates a list of lists
           deep: true also merges nested objects
aggregate  computes one value of a list, or an object of several values
           function, field; aggregates: object of name to {function, field}
sort       sorts a list; the sort is stable
           by: path or list of paths; without by, the items are compared; descending: true or false
group      makes an object of key to items, or of key to aggregates of the items
           by: path; aggregates: as for aggregate

op: == != < <= > >= in not_in contains exists missing. function: count sum avg min max first last
unique list; each function gets the values at `field`, or the items themselves.
"""

import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.calls import FunctionCall, Mode
from runnel.core.message_text import shorten
from runnel.core.validation.handler_settings import DATA_PROCESSOR, OPERATION_SETTINGS
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers.environment import check_config

OperationSettings: TypeAlias = Mapping[str, Json]

ABSENT: Any = object()
MISSING_CHOICES = ("error", "null", "omit")
SHOWN_CHARS_MAX = 60
_LIST_INDEX = re.compile(r"-?[0-9]{1,18}")


def find_value(item: Json, path: str) -> Json:
    """Returns the value at `path`; ABSENT if the path does not exist."""
    value = item
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key, ABSENT)
        elif isinstance(value, list) and _LIST_INDEX.fullmatch(key):
            index = int(key)
            value = value[index] if -len(value) <= index < len(value) else ABSENT
        else:
            return ABSENT
    return value


def require_value(
    item: Json, path: str, operation: str | None, *, index: int | None = None
) -> Json:
    value = find_value(item, path)
    if value is ABSENT:
        where = "data" if index is None else f"item {index}"
        has = f"; the object has: {', '.join(list(item)[:10])}" if isinstance(item, dict) else ""
        raise build_error(operation, f"there is no '{path}' in {where}{has}")
    return value


def require_list(data: Json, operation: str) -> list[Json]:
    if not isinstance(data, list):
        raise build_error(operation, f"expects data to be a list, got {describe_value(data)}")
    return data


def require_path(settings: Mapping[str, Json], key: str, operation: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise build_error(
            operation, f"expects {key} to be a path such as 'customer.name', got {value!r}"
        )
    return value


def build_error(operation: str | None, problem: str) -> InputError:
    return InputError(f"data_processor {operation}: {problem}")


def describe_value(value: Json) -> str:
    """Describes a value for a message: its type and its beginning."""
    return f"{type(value).__name__} {shorten(repr(value), SHOWN_CHARS_MAX)}"


# The operations aggregate and group.


def aggregate(data: Json, settings: OperationSettings) -> Json:
    items = require_list(data, "aggregate")
    if "aggregates" in settings:
        if "function" in settings or "field" in settings:
            raise build_error("aggregate", "expects either aggregates, or function and field")
        return _compute_aggregates(items, settings["aggregates"], "aggregate")
    return _compute_aggregate(items, settings, "aggregate")


def group(data: Json, settings: OperationSettings) -> Json:
    groups: dict[str, list[Json]] = {}
    by = require_path(settings, "by", "group")
    for index, item in enumerate(require_list(data, "group")):
        groups.setdefault(
            _format_group_key(require_value(item, by, "group", index=index)), []
        ).append(item)
    if "aggregates" not in settings:
        return groups
    return {
        key: _compute_aggregates(items, settings["aggregates"], "group")
        for key, items in groups.items()
    }


def _format_group_key(value: Json) -> str:
    """Returns a text unchanged, and any other value as JSON, because keys are texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise build_error(
            "group", f"expects the value at by to be plain, got {describe_value(value)}"
        )
    return msgspec.json.encode(value).decode()


def _compute_aggregates(items: list[Json], aggregates: Json, operation: str) -> dict[str, Json]:
    if not isinstance(aggregates, dict) or not aggregates:
        raise build_error(
            operation, "expects aggregates to be an object of name to {function: …, field: …}"
        )
    return {
        name: _compute_aggregate(items, settings, operation)
        for name, settings in aggregates.items()
    }


def _compute_aggregate(items: list[Json], aggregate_settings: Json, operation: str) -> Json:
    if not isinstance(aggregate_settings, dict) or not set(aggregate_settings) <= {
        "function",
        "field",
    }:
        raise build_error(
            operation,
            "expects an aggregate to be an object of function and field, got "
            f"{describe_value(aggregate_settings)}",
        )
    name = aggregate_settings.get("function")
    if not isinstance(name, str) or name not in _AGGREGATE_FUNCTIONS:
        known = ", ".join(_AGGREGATE_FUNCTIONS)
        raise build_error(operation, f"expects function to be one of {known}, got {name!r}")
    path = (
        require_path(aggregate_settings, "field", operation)
        if "field" in aggregate_settings
        else None
    )
    values = [
        item if path is None else require_value(item, path, operation, index=index)
        for index, item in enumerate(items)
    ]
    try:
        return _AGGREGATE_FUNCTIONS[name](values)
    except (TypeError, OverflowError, RecursionError) as error:
        raise build_error(operation, f"can't compute {name} of these values: {error}") from None


def _compute_sum(values: list[Json]) -> Json:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{describe_value(value)} is not a number")
    return sum(values)


def _compute_average(values: list[Json]) -> Json:
    return _compute_sum(values) / len(values) if values else None


def _list_unique(values: list[Json]) -> list[Json]:
    seen: dict[bytes, Json] = {}
    for value in values:
        seen.setdefault(msgspec.json.encode(value, order="sorted"), value)
    return list(seen.values())


_AGGREGATE_FUNCTIONS: Mapping[str, Callable[[list[Json]], Json]] = {
    "count": len,
    "sum": _compute_sum,
    "avg": _compute_average,
    "min": lambda values: min(values) if values else None,
    "max": lambda values: max(values) if values else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "unique": _list_unique,
    "list": list,
}


# The operations pick, map, filter, merge and sort.


def pick(data: Json, settings: OperationSettings) -> Json:
    fields, missing = _parse_fields(settings, "pick"), _parse_missing(settings, "pick")
    if isinstance(data, dict):
        return _pick_fields(data, fields, missing, "pick", None)
    return [
        _pick_fields(item, fields, missing, "pick", index)
        for index, item in enumerate(require_list(data, "pick"))
    ]


def map_items(data: Json, settings: OperationSettings) -> Json:
    items, missing = require_list(data, "map"), _parse_missing(settings, "map")
    if ("field" in settings) == ("fields" in settings):
        raise build_error("map", "expects exactly one of field and fields")
    if "field" in settings:
        if "set" in settings:
            raise build_error("map", "accepts set only together with fields")
        return _pluck_field(items, require_path(settings, "field", "map"), missing)
    constants = settings.get("set", {})
    if not isinstance(constants, dict):
        raise build_error("map", f"expects set to be an object, got {describe_value(constants)}")
    fields = _parse_fields(settings, "map")
    return [
        {**_pick_fields(item, fields, missing, "map", index), **constants}
        for index, item in enumerate(items)
    ]


def filter_items(data: Json, settings: OperationSettings) -> Json:
    items = require_list(data, "filter")
    match = settings.get("match", "all")
    if match not in ("all", "any"):
        raise build_error("filter", f"expects match to be all or any, got {match!r}")
    if "where" in settings and any(key in settings for key in ("field", "op", "value")):
        raise build_error("filter", "expects either where, or field, op and value")
    conditions = settings.get("where", [{k: v for k, v in settings.items() if k != "match"}])
    if not isinstance(conditions, list) or not conditions:
        raise build_error(
            "filter", f"expects where to be a list of conditions, got {describe_value(conditions)}"
        )
    tests = [_compile_condition(condition) for condition in conditions]
    combine = all if match == "all" else any
    return [item for item in items if combine(test(item) for test in tests)]


def merge(data: Json, settings: OperationSettings) -> Json:
    parts, deep = require_list(data, "merge"), _parse_flag(settings, "deep", "merge")
    if all(isinstance(part, list) for part in parts) and parts:
        return [item for part in parts for item in part]
    merged: dict[str, Json] = {}
    for index, part in enumerate(parts):
        if not isinstance(part, dict):
            raise build_error(
                "merge",
                f"expects objects only, or lists only; item {index} is {describe_value(part)}",
            )
        if deep:
            _merge_into(merged, part)
        else:
            merged.update(part)
    return merged


def sort_items(data: Json, settings: OperationSettings) -> Json:
    items = require_list(data, "sort")
    by = settings.get("by", [])
    paths = [by] if isinstance(by, str) else by
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise build_error(
            "sort", f"expects by to be a path or a list of paths, got {describe_value(by)}"
        )
    keys = [
        tuple(require_value(item, path, "sort", index=index) for path in paths)
        if paths
        else (item,)
        for index, item in enumerate(items)
    ]
    for column in zip(*keys, strict=True):
        _check_comparable(column)
    order = sorted(
        range(len(items)), key=keys.__getitem__, reverse=_parse_flag(settings, "descending", "sort")
    )
    return [items[index] for index in order]


def _parse_fields(settings: OperationSettings, operation: str) -> dict[str, str]:
    """Returns the setting `fields` as a dict of new name to path."""
    fields = settings.get("fields")
    if isinstance(fields, list) and all(isinstance(path, str) for path in fields):
        fields = {path: path for path in fields}
    if not isinstance(fields, dict) or not fields:
        raise build_error(
            operation, "expects fields to be a list of paths, or an object of new name to path"
        )
    for name, path in fields.items():
        if not isinstance(path, str) or not path:
            raise build_error(
                operation, f"expects fields.{name} to be a path, got {describe_value(path)}"
            )
    return fields


def _parse_missing(settings: OperationSettings, operation: str) -> str:
    missing = settings.get("missing", "error")
    if missing not in MISSING_CHOICES:
        raise build_error(
            operation, f"expects missing to be one of {', '.join(MISSING_CHOICES)}, got {missing!r}"
        )
    return str(missing)


def _parse_flag(settings: OperationSettings, key: str, operation: str) -> bool:
    value = settings.get(key, False)
    if not isinstance(value, bool):
        raise build_error(operation, f"expects {key} to be true or false, got {value!r}")
    return value


def _pick_fields(
    item: Json, fields: Mapping[str, str], missing: str, operation: str, index: int | None
) -> dict[str, Json]:
    picked: dict[str, Json] = {}
    for name, path in fields.items():
        value = find_value(item, path)
        if value is ABSENT and missing == "omit":
            continue
        if value is ABSENT and missing == "null":
            value = None
        picked[name] = (
            require_value(item, path, operation, index=index) if value is ABSENT else value
        )
    return picked


def _pluck_field(items: list[Json], path: str, missing: str) -> list[Json]:
    plucked = []
    for index, item in enumerate(items):
        value = find_value(item, path)
        if value is ABSENT and missing == "error":
            value = require_value(item, path, "map", index=index)
        if value is not ABSENT:
            plucked.append(value)
        elif missing == "null":
            plucked.append(None)
    return plucked


def _compile_condition(condition: Json) -> Callable[[Json], bool]:
    if not isinstance(condition, dict):
        raise build_error(
            "filter", f"expects a condition to be an object, got {describe_value(condition)}"
        )
    for key in condition:
        if key not in {"field", "op", "value"}:
            raise build_error("filter", f"expects field, op and value in a condition, got '{key}'")
    op, value = condition.get("op", "=="), condition.get("value", ABSENT)
    path = require_path(condition, "field", "filter") if "field" in condition else None
    if op in ("exists", "missing"):
        return lambda item: (_get_operand(item, path) is not ABSENT) is (op == "exists")
    if not isinstance(op, str) or op not in _COMPARISONS:
        known = ", ".join([*_COMPARISONS, "exists", "missing"])
        raise build_error("filter", f"expects op to be one of {known}, got {op!r}")
    if value is ABSENT:
        raise build_error("filter", f"needs a value for the comparison '{op}'")
    return lambda item: _is_match(_get_operand(item, path), op, value)


def _get_operand(item: Json, path: str | None) -> Json:
    return item if path is None else find_value(item, path)


def _is_match(operand: Json, op: str, value: Json) -> bool:
    """Compares two values; an absent operand satisfies only `!=` and `not_in`."""
    if operand is ABSENT:
        return op in {"!=", "not_in"}
    try:
        return bool(_COMPARISONS[op](operand, value))
    except (TypeError, RecursionError):
        raise build_error(
            "filter", f"can't compare {describe_value(operand)} {op} {describe_value(value)}"
        ) from None


_COMPARISONS: Mapping[str, Callable[[Json, Json], bool]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "in": lambda operand, value: operand in value,
    "not_in": lambda operand, value: operand not in value,
    "contains": lambda operand, value: value in operand,
}


def _merge_into(merged: dict[str, Json], part: Mapping[str, Json]) -> None:
    """Merges `part` into `merged`, in time proportional to the size of `part`.

    Nested objects of `merged` are never part of the data, so this function may change them.
    """
    pending = [(merged, part)]
    while pending:
        target, source = pending.pop()
        for key, value in source.items():
            if not isinstance(value, dict):
                target[key] = value
                continue
            if not isinstance(target.get(key), dict):
                target[key] = {}
            pending.append((target[key], value))


def _check_comparable(column: tuple[Json, ...]) -> None:
    """Raises InputError unless all values are numbers or all are texts."""
    kinds = {
        "number" if isinstance(value, int | float) else type(value).__name__ for value in column
    }
    if len(kinds) > 1 or not kinds <= {"number", "str"}:
        raise build_error(
            "sort", f"expects only numbers or only texts, got {' and '.join(sorted(kinds))}"
        )


# With more items than this, an operation runs in a thread, to keep the event loop responsive.
ITEMS_ON_LOOP_MAX = 1_000


OPERATION_FUNCTIONS: Mapping[str, Callable[[Json, OperationSettings], Json]] = {
    "pick": pick,
    "map": map_items,
    "filter": filter_items,
    "merge": merge,
    "aggregate": aggregate,
    "sort": sort_items,
    "group": group,
}


def plan(config: Json) -> FunctionCall:
    """Plans the call of one task; raises InputError for an unknown operation or missing data."""
    check_config(DATA_PROCESSOR, config)
    data = config.get("data")
    is_small = not isinstance(data, list | dict) or len(data) <= ITEMS_ON_LOOP_MAX
    mode = Mode.LOOP if is_small else Mode.THREAD
    return FunctionCall(function=process, mode=mode, positional=(config,))


def process(config: Mapping[str, Json]) -> Json:
    """Runs the operation of a config that `plan` has checked.

    Raises InputError for settings or data that do not fit the operation.
    """
    if "operation" not in config:
        return config
    name = config["operation"]
    settings = {key: value for key, value in config.items() if key not in {"operation", "data"}}
    for key in settings:
        if key not in OPERATION_SETTINGS[name]:
            raise build_error(
                name, f"has no setting '{key}'; expected {', '.join(OPERATION_SETTINGS[name])}"
            )
    return OPERATION_FUNCTIONS[name](config["data"], settings)
