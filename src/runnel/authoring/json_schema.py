"""Checks JSON Schemas, and values against them, with the jsonschema library.

Only `input_schema.py` imports this module, and only when it needs jsonschema. No schema is fetched
from the network: a schema may refer only to its own parts and to the published drafts.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema_specifications  # type: ignore[import-untyped]  # it has no py.typed
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from runnel.core.message_text import describe_value, quote_name, shorten
from runnel.core.values import Json

MESSAGE_CHARS_MAX = 200
_NON_SCHEMA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
_REGISTRY: Registry[Any] = jsonschema_specifications.REGISTRY


def find_schema_problems(schema: dict[str, Json]) -> list[str]:
    dialect = schema.get("$schema")
    if dialect is not None and not _is_known_dialect(dialect):
        problem = (
            f"the dialect {describe_value(dialect)} is not known; remove it to use draft 2020-12"
        )
        return [f"$schema: {problem}"]
    kind = validator_for(schema, default=Draft202012Validator)
    errors = kind(kind.META_SCHEMA, registry=_REGISTRY).iter_errors(schema)
    problems = sorted(_format_error("", error) for error in errors)
    return problems or [*_find_pattern_problems(schema), *_find_reference_problems(schema)]


def find_value_problems(schema: dict[str, Json], value: Json, *, where: str) -> list[str]:
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        errors = list(kind(schema, registry=_REGISTRY).iter_errors(value))
    except RecursionError:
        return [f"{where}: the schema refers to itself endlessly; correct its $ref"]
    return sorted(_format_error(where, error) for error in errors)


def _is_known_dialect(dialect: Json) -> bool:
    """Returns True if jsonschema knows the dialect.

    For an unknown dialect, `validator_for` returns its default. So two defaults give two classes.
    """
    if not isinstance(dialect, str):
        return False
    kinds = {
        validator_for({"$schema": dialect}, default=default)
        for default in (Draft7Validator, Draft202012Validator)
    }
    return len(kinds) == 1


def _format_error(where: str, error: ValidationError) -> str:
    message = shorten(error.message, MESSAGE_CHARS_MAX)
    path = where + "".join(_format_path_step(step) for step in error.absolute_path)
    return f"{path.removeprefix('.')}: {message}" if path else message


def _format_path_step(step: str | int) -> str:
    if isinstance(step, str) and step.isidentifier():
        return f".{step}"
    return f"[{step}]" if isinstance(step, int) else f"[{quote_name(step)}]"


def _find_pattern_problems(schema: Json) -> Iterator[str]:
    for part in _iterate_subschemas(schema):
        by_pattern = part.get("patternProperties")
        patterns = [part.get("pattern"), *(by_pattern if isinstance(by_pattern, dict) else ())]
        for pattern in patterns:
            if isinstance(pattern, str) and (problem := _find_pattern_problem(pattern)):
                yield f"the pattern {quote_name(pattern)} is not a regular expression: {problem}"


def _find_pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _find_reference_problems(schema: dict[str, Json]) -> Iterator[str]:
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = _REGISTRY.resolver_with_root(resource)
    for part in _iterate_subschemas(schema):
        reference = part.get("$ref")
        if not isinstance(reference, str) or "$id" in part:
            continue
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError):
            yield (
                f"the $ref {quote_name(reference)} can't be resolved; expected a part of this "
                "schema, such as '#/$defs/name'"
            )


def _iterate_subschemas(schema: Json) -> Iterator[dict[str, Json]]:
    """Yields every object in a schema that may itself be a schema."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend(_iterate_child_values(part.items()))
        elif isinstance(part, list):
            stack.extend(part)


def _iterate_child_values(items: Iterable[tuple[str, Json]]) -> Iterator[Json]:
    return (value for key, value in items if key not in _NON_SCHEMA_KEYWORDS)
