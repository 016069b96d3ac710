"""JSON Schema, by the jsonschema library: whether a schema is one, and what a value lacks of it.

Reached only through `schema.py`, which imports it late. Nothing is ever fetched: a schema may refer
to its own parts and to the drafts themselves.
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

from runnel.core.values import Json
from runnel.core.wording import quoted, shown

MESSAGE_CHARS_MAX = 200
_NO_SCHEMAS_BELOW = frozenset({"const", "default", "enum", "examples"})
_REGISTRY: Registry[Any] = jsonschema_specifications.REGISTRY


def schema_problems(schema: dict[str, Json]) -> list[str]:
    dialect = schema.get("$schema")
    if dialect is not None and not _is_known(dialect):
        return [f"$schema: {shown(dialect)} is not known; leave it out for draft 2020-12"]
    kind = validator_for(schema, default=Draft202012Validator)
    errors = kind(kind.META_SCHEMA, registry=_REGISTRY).iter_errors(schema)
    problems = sorted(_sentence("", error) for error in errors)
    return problems or [*_pattern_problems(schema), *_reference_problems(schema)]


def value_problems(schema: dict[str, Json], value: Json, *, where: str) -> list[str]:
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        errors = list(kind(schema, registry=_REGISTRY).iter_errors(value))
    except RecursionError:
        return [f"{where}: the schema refers to itself without an end; mend the schema"]
    return sorted(_sentence(where, error) for error in errors)


def _is_known(dialect: Json) -> bool:
    """One that is not known gives the default, whatever that is."""
    if not isinstance(dialect, str):
        return False
    kinds = {
        validator_for({"$schema": dialect}, default=default)
        for default in (Draft7Validator, Draft202012Validator)
    }
    return len(kinds) == 1


def _sentence(where: str, error: ValidationError) -> str:
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[: MESSAGE_CHARS_MAX - 1] + "…"
    path = where + "".join(_step(step) for step in error.absolute_path)
    return f"{path.removeprefix('.')}: {message}" if path else message


def _step(step: str | int) -> str:
    if isinstance(step, str) and step.isidentifier():
        return f".{step}"
    return f"[{step}]" if isinstance(step, int) else f"[{quoted(step)}]"


def _pattern_problems(schema: Json) -> Iterator[str]:
    for part in _parts(schema):
        below = part.get("patternProperties")
        found = [part.get("pattern"), *(below if isinstance(below, dict) else ())]
        for pattern in found:
            if isinstance(pattern, str) and (why := _pattern_problem(pattern)):
                yield f"the pattern {quoted(pattern)} is not a regular expression: {why}"


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _reference_problems(schema: dict[str, Json]) -> Iterator[str]:
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = _REGISTRY.resolver_with_root(resource)
    for part in _parts(schema):
        reference = part.get("$ref")
        if not isinstance(reference, str) or "$id" in part:
            continue
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError):
            yield (
                f"the $ref {quoted(reference)} leads nowhere; expected a part of this schema, such "
                "as '#/$defs/name'"
            )


def _parts(schema: Json) -> Iterator[dict[str, Json]]:
    """Every object in a schema that may be a schema itself."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend(_below(part.items()))
        elif isinstance(part, list):
            stack.extend(part)


def _below(items: Iterable[tuple[str, Json]]) -> Iterator[Json]:
    return (value for key, value in items if key not in _NO_SCHEMAS_BELOW)
