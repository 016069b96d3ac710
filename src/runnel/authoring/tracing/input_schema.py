"""The input of a decorated workflow, from its signature: names, types and defaults."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from runnel.authoring.calls import AnyFunction
from runnel.core.checks.json_values import json_problems
from runnel.core.json_types import Json
from runnel.errors import InputError

_EMPTY = inspect.Parameter.empty


def input_schema(function: AnyFunction, label: str) -> dict[str, Json] | None:
    """A JSON Schema; None for a workflow without parameters, which takes any input.

    Raises InputError for a parameter that no JSON value fits.
    """
    parameters = inspect.signature(function).parameters
    hints = _hints(function, label)
    found = {name: _property(each, hints, label) for name, each in parameters.items()}
    if not found:
        return None
    definitions: dict[str, Json] = {}
    for _, components in found.values():
        definitions |= components
    required = [name for name, each in parameters.items() if each.default is _EMPTY]
    return {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in found.items()},
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def defaults_of(function: AnyFunction) -> Mapping[str, Json]:
    """Of the parameters that have one, as JSON."""
    return {
        name: _as_json(each.default)
        for name, each in inspect.signature(function).parameters.items()
        if each.default is not _EMPTY
    }


def check_parameters(parameters: Iterable[inspect.Parameter], label: str) -> None:
    """Raises InputError for what an object of named values can't fill."""
    for each in parameters:
        if each.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            star = "*" if each.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise InputError(
                f"workflow {label}: {star}{each.name}: the input of a workflow has names that are "
                "known before; write each as a parameter, or take one list or dict"
            )
        if each.default is not _EMPTY:
            for problem in json_problems(_as_json(each.default), f"the default of '{each.name}'"):
                raise InputError(f"workflow {label}: {problem}")


def _hints(function: AnyFunction, label: str) -> Mapping[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InputError(
            f"workflow {label}: its type hints can't be read: {error}; import the names that they "
            "use, also at run time"
        ) from error


def _property(
    parameter: inspect.Parameter, hints: Mapping[str, Any], label: str
) -> tuple[dict[str, Json], dict[str, Json]]:
    """The schema, and the definitions that it refers to."""
    hint = hints.get(parameter.name, Any)
    try:
        (schema,), components = msgspec.json.schema_components(
            [hint], ref_template="#/$defs/{name}"
        )
    except TypeError as error:
        name = getattr(hint, "__name__", str(hint))
        raise InputError(
            f"workflow {label}: the input '{parameter.name}' is a {name}, which JSON can't hold; "
            "use a plain type, a TypedDict or a dataclass"
        ) from error
    if parameter.default is not _EMPTY:
        schema = {**schema, "default": _as_json(parameter.default)}
    return schema, components


def _as_json(value: object) -> Json:
    """The value itself where that can't be done: it is refused with its name then."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return value
