"""Fills the defaults of an input schema into the input of an execution.

The stored input then has every value that a default provides. So templates, keys and outputs read
the same value, whichever process evaluates them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from runnel.core.values import Json

# The deepest object or list of an input that gets defaults. Deeper values stay as they are.
DEPTH_MAX = 100

_NULL_SCHEMA = {"type": "null"}


def fill_defaults(schema: Mapping[str, Json] | None, value: Json) -> Json:
    """Returns the input with the default of each missing property; the same object if none is.

    A default is used in `properties` at any depth, also below `items`, `allOf` and a `$ref` into
    the same schema, and for an optional object (`anyOf` or `oneOf` with null). An explicit null is
    a value, which no default replaces. A value of another type than its schema stays as it is.
    """
    return value if schema is None else _fill(schema, value, _Position(schema))


class _Position(NamedTuple):
    """A position in an input: the whole schema, the depth, and the references followed here."""

    root: Mapping[str, Json]
    depth: int = 0
    references: frozenset[str] = frozenset()

    def descend(self) -> "_Position":
        return _Position(self.root, self.depth + 1)


def _fill(schema: Json, value: Json, position: _Position) -> Json:
    if not isinstance(schema, Mapping) or position.depth > DEPTH_MAX:
        return value
    for part, part_position in _list_parts(schema, value, position):
        value = _fill(part, value, part_position)
    if isinstance(value, dict):
        return _fill_properties(schema.get("properties"), value, position.descend())
    if isinstance(value, list) and "items" in schema:
        return _fill_items(schema["items"], value, position.descend())
    return value


def _list_parts(
    schema: Mapping[str, Json], value: Json, position: _Position
) -> Iterator[tuple[Json, _Position]]:
    """Yields the other schemas that describe the same value."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in position.references:
        followed = position._replace(references=position.references | {reference})
        yield _resolve_reference(position.root, reference), followed
    for part in _get_list(schema, "allOf"):
        yield part, position
    for keyword in ("anyOf", "oneOf"):
        options = [option for option in _get_list(schema, keyword) if option != _NULL_SCHEMA]
        if len(options) == 1 and value is not None:
            yield options[0], position


def _fill_properties(properties: Json, value: dict[str, Json], position: _Position) -> Json:
    if not isinstance(properties, dict):
        return value
    filled = value
    for name, schema in properties.items():
        if name in value:
            item = _fill(schema, value[name], position)
            if item is value[name]:
                continue
        elif isinstance(schema, dict) and "default" in schema:
            item = schema["default"]
        else:
            continue
        if filled is value:
            filled = dict(value)
        filled[name] = item
    return filled


def _fill_items(schema: Json, items: list[Json], position: _Position) -> Json:
    filled = [_fill(schema, item, position) for item in items]
    is_changed = any(new is not old for new, old in zip(filled, items, strict=True))
    return filled if is_changed else items


def _get_list(schema: Mapping[str, Json], keyword: str) -> list[Json]:
    options = schema.get(keyword)
    return options if isinstance(options, list) else []


def _resolve_reference(root: Mapping[str, Json], reference: str) -> Json:
    """Returns the part of the schema that a JSON pointer such as `#/$defs/user` names, or None."""
    if not reference.startswith("#"):
        return None
    part: Json = root
    for step in reference[1:].split("/")[1:]:
        if not isinstance(part, Mapping):
            return None
        part = part.get(step.replace("~1", "/").replace("~0", "~"))
    return part
