"""Fills the defaults of an input schema into the input of an execution.

The stored input then has every value that a default provides. So templates, keys and outputs read
the same value, whichever process evaluates them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from runnel.core.values import Json

# The deepest object or list of an input that gets defaults. Deeper values stay as they are.
DEPTH_MAX = 100

# The most schemas that are applied to an input without values, and the most for each of its objects
# and lists. The values after them stay as they are. A decision of the orchestrator fills the input
# of a child, so no schema may take long: a step takes about 1 µs.
STEPS_MAX = 10_000
STEPS_PER_VALUE = 20

_NULL_SCHEMA = {"type": "null"}
_NOT_DEFAULTED: frozenset[int] = frozenset()

Schema = Mapping[str, Json]


def fill_defaults(schema: Schema | None, value: Json) -> Json:
    """Returns the input with the default of each missing property; the same object if none is.

    A default is used in `properties` at any depth, also below `items`, `allOf` and a `$ref` into
    the same schema, and for an optional object (`anyOf` or `oneOf` with null). The defaults of an
    object's properties are filled into a default of the object itself. An explicit null is a value,
    which no default replaces. A value of another type than its schema stays as it is.
    """
    return value if schema is None else _DefaultFiller(schema).fill([schema], value)


class _DefaultFiller:
    """Visits each value once, with all schemas that describe it."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps_left = STEPS_MAX
        self._expanded: dict[tuple[int, ...], list[Schema]] = {}

    def fill(
        self,
        schemas: Sequence[Json],
        value: Json,
        *,
        depth: int = 0,
        defaulted: frozenset[int] = _NOT_DEFAULTED,
    ) -> Json:
        """Returns the value with its defaults. `defaulted` has the schemas whose default it is."""
        if not schemas or depth > DEPTH_MAX or not isinstance(value, dict | list):
            return value
        parts = self._expand(schemas)
        self._steps_left -= len(parts) if defaulted else len(parts) - STEPS_PER_VALUE
        if self._steps_left < 0:
            return value
        if isinstance(value, dict):
            return self._fill_properties(parts, value, depth=depth + 1, defaulted=defaulted)
        item_schemas = [part["items"] for part in parts if "items" in part]
        filled = [
            self.fill(item_schemas, item, depth=depth + 1, defaulted=defaulted) for item in value
        ]
        is_changed = any(new is not old for new, old in zip(filled, value, strict=True))
        return filled if is_changed else value

    def _fill_properties(
        self,
        parts: Iterable[Schema],
        value: dict[str, Json],
        *,
        depth: int,
        defaulted: frozenset[int],
    ) -> Json:
        filled = value
        for name, schemas in _group_properties(parts).items():
            if name in value:
                item, item_defaulted = value[name], defaulted
            else:
                chosen = next((schema for schema in schemas if "default" in schema), None)
                # A default that contains itself would never end.
                if chosen is None or id(chosen) in defaulted:
                    continue
                item, item_defaulted = chosen["default"], defaulted | {id(chosen)}
            item = self.fill(schemas, item, depth=depth, defaulted=item_defaulted)
            if name in value and item is value[name]:
                continue
            if filled is value:
                filled = dict(value)
            filled[name] = item
        return filled

    def _expand(self, schemas: Sequence[Json]) -> list[Schema]:
        """Returns the schemas and the others that describe the same value, each of them once.

        A schema comes after the schemas that it refers to.
        """
        key = tuple(map(id, schemas))
        known = self._expanded.get(key)
        if known is not None:
            return known
        parts: list[Schema] = []
        seen: set[int] = set()
        stack = [(schema, False) for schema in reversed(schemas)]
        while stack:
            schema, is_visited = stack.pop()
            if not isinstance(schema, Mapping):
                continue
            if is_visited:
                parts.append(schema)
            elif id(schema) not in seen:
                seen.add(id(schema))
                stack.append((schema, True))
                stack += reversed([(part, False) for part in _list_parts(self._root, schema)])
        self._expanded[key] = parts
        return parts


def _group_properties(parts: Iterable[Schema]) -> dict[str, list[Schema]]:
    """Returns the schemas of each property, in the order of the parts."""
    grouped: dict[str, list[Schema]] = {}
    for part in parts:
        properties = part.get("properties")
        if isinstance(properties, dict):
            for name, schema in properties.items():
                if isinstance(schema, dict):
                    grouped.setdefault(name, []).append(schema)
    return grouped


def _list_parts(root: Schema, schema: Schema) -> Iterator[Json]:
    """Yields the other schemas that describe the same object or list."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield _resolve_reference(root, reference)
    yield from _get_list(schema, "allOf")
    for keyword in ("anyOf", "oneOf"):
        options = [option for option in _get_list(schema, keyword) if option != _NULL_SCHEMA]
        if len(options) == 1:
            yield options[0]


def _get_list(schema: Schema, keyword: str) -> list[Json]:
    options = schema.get(keyword)
    return options if isinstance(options, list) else []


def _resolve_reference(root: Schema, reference: str) -> Json:
    """Returns the part of the schema that a JSON pointer such as `#/$defs/user` names, or None."""
    if not reference.startswith("#"):
        return None
    part: Json = root
    for step in reference[1:].split("/")[1:]:
        if not isinstance(part, Mapping):
            return None
        part = part.get(step.replace("~1", "/").replace("~0", "~"))
    return part
