"""Recognises JSON Schemas that are surely valid, without the jsonschema library.

The library checks a schema with the schema of its dialect. That takes 0.6 ms for each part: 1.3 s
for 2,000 properties. This check takes about 5 µs for each part.
"""

from collections.abc import Callable, Mapping

from runnel.core.values import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return type(value) is int and value >= 0


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _is_anything(_value: Json) -> bool:
    return True


def _is_list_of_names(value: Json) -> bool:
    is_list = isinstance(value, list) and all(map(_is_text, value))
    return is_list and len(set(value)) == len(value)


def _is_type(value: Json) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _is_list_of_names(value) and bool(value) and _TYPES.issuperset(value)


_VALUE_CHECKS: Mapping[str, Callable[[Json], bool]] = {
    **dict.fromkeys(("const", "default"), _is_anything),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(
        ("title", "description", "format", "contentEncoding", "pattern", "$comment"), _is_text
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _is_count,
    ),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "uniqueItems": _is_flag,
    "required": _is_list_of_names,
    "type": _is_type,
    "$schema": lambda value: value == DIALECT,
    "$ref": _is_text,
}
_SCHEMA_KEYWORDS = frozenset(
    {"items", "propertyNames", "additionalProperties", "not", "if", "then", "else"}
)
_SCHEMA_LIST_KEYWORDS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_SCHEMA_DICT_KEYWORDS = frozenset({"properties", "$defs"})


def is_surely_schema(schema: Json) -> bool:
    """Returns True if the schema is valid in draft 2020-12; False if the library must decide."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            return False
        for keyword, value in part.items():
            inner = _list_inner_schemas(keyword, value)
            if inner is None:
                return False
            pending += inner
    return True


def _list_inner_schemas(keyword: str, value: Json) -> list[Json] | None:
    """Returns the schemas in a keyword; None if the value may be wrong for the keyword."""
    if keyword in _SCHEMA_KEYWORDS:
        return [value]
    if keyword in _SCHEMA_LIST_KEYWORDS:
        return value if isinstance(value, list) and value else None
    if keyword in _SCHEMA_DICT_KEYWORDS:
        return list(value.values()) if isinstance(value, dict) else None
    check = _VALUE_CHECKS.get(keyword)
    return [] if check is not None and check(value) else None
