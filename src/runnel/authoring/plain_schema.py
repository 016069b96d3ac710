"""Tells quickly that a value surely fits a schema of the plainest kind.

The schemas of decorated workflows are of this kind, and most inputs fit: so running one does not
have to import jsonschema, which takes longer than the rest of a cold start. Whatever is not sure
is left to jsonschema, which also finds the words for what is wrong.
"""

from collections.abc import Callable, Mapping

from runnel.core.json_types import Json

_KINDS: Mapping[str, Callable[[Json], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_SAYS_NOTHING = frozenset({"default", "title", "description", "examples"})


def surely_fits(schema: Json, value: Json) -> bool:
    """False means "not sure", never "it does not fit"."""
    if schema is True:
        return True
    if not isinstance(schema, dict):
        return False
    return all(_holds(keyword, schema, value) for keyword in schema)


def _holds(keyword: str, schema: dict[str, Json], value: Json) -> bool:
    if keyword in _SAYS_NOTHING:
        return True
    found = schema[keyword]
    match keyword:
        case "type":
            return isinstance(found, str) and found in _KINDS and _KINDS[found](value)
        case "enum":
            return isinstance(value, str) and isinstance(found, list) and value in found
        case "anyOf":
            return isinstance(found, list) and any(surely_fits(each, value) for each in found)
        case "items":
            return not isinstance(value, list) or all(surely_fits(found, each) for each in value)
        case "properties":
            return _properties_fit(found, value)
        case "required":
            return isinstance(value, dict) and all(name in value for name in found)
        case "additionalProperties":
            return _others_fit(found, schema.get("properties", {}), value)
        case _:
            return False


def _properties_fit(properties: Json, value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    return all(
        surely_fits(schema, value[name]) for name, schema in properties.items() if name in value
    )


def _others_fit(schema: Json, known: Mapping[str, Json], value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    return all(surely_fits(schema, item) for name, item in value.items() if name not in known)
