"""aggregate and group: operations that make few values out of many."""

from collections.abc import Callable, Mapping

import msgspec

from runnel.core.json_types import Json
from runnel.handlers.data_paths import items_of, need, refuse, shown, text_of

Settings = Mapping[str, Json]


def aggregate(data: Json, settings: Settings) -> Json:
    items = items_of(data, "aggregate")
    if "aggregates" in settings:
        if "function" in settings or "field" in settings:
            raise refuse("aggregate", "expects either aggregates, or function and field")
        return _all(items, settings["aggregates"], "aggregate")
    return _one(items, settings, "aggregate")


def group(data: Json, settings: Settings) -> Json:
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
