"""The input of a decorated workflow, from its signature: names, types and defaults."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
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
    if not parameters:
        return None
    hints = _hints(function, label)
    wanted = {name: hints.get(name, Any) for name in parameters}
    # All at once, so that two types of one name get a definition each.
    schemas, definitions = _schemas(wanted, label)
    required = [name for name, each in parameters.items() if each.default is _EMPTY]
    return {
        "type": "object",
        "properties": {
            name: schema | _default(each)
            for schema, (name, each) in zip(schemas, parameters.items(), strict=True)
        },
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


def _schemas(
    wanted: Mapping[str, Any], label: str
) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    """One for each, and the definitions that they refer to."""
    try:
        return _components(list(wanted.values()))
    except TypeError:
        for name, hint in wanted.items():
            _check(name, hint, label)
        raise


def _check(name: str, hint: Any, label: str) -> None:
    try:
        _components([hint])
    except TypeError as error:
        shown = getattr(hint, "__name__", str(hint))
        raise InputError(
            f"workflow {label}: the input '{name}' is a {shown}, which JSON can't hold; "
            "use a plain type, a TypedDict or a dataclass"
        ) from error


def _components(hints: list[Any]) -> tuple[Sequence[dict[str, Json]], dict[str, Json]]:
    return msgspec.json.schema_components(hints, ref_template="#/$defs/{name}")


def _default(parameter: inspect.Parameter) -> dict[str, Json]:
    return {} if parameter.default is _EMPTY else {"default": _as_json(parameter.default)}


def _as_json(value: object) -> Json:
    """The value itself where that can't be done: it is refused with its name then."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return value
