"""Checks the input of an execution against the workflow's schema, and parses `name=value`.

Importing jsonschema takes about 150 ms, more than all other parts of a cold start. So jsonschema is
imported only for a workflow file with an `input` schema, and for an input that the quick check does
not accept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from runnel.core.message_text import quote_name
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError, InvalidInputError

# The quick check accepts values that certainly fit a simple schema. Decorated workflows have simple
# schemas and most inputs fit, so most runs of such a workflow do not import jsonschema. jsonschema
# checks the values that the quick check does not accept, and reports the problems.

_TYPE_CHECKS: Mapping[str, Callable[[Json], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_ANNOTATION_KEYWORDS = frozenset({"default", "title", "description", "examples"})


def is_surely_valid(schema: Json, value: Json) -> bool:
    """Returns True if the value certainly fits the schema; False if only jsonschema can decide."""
    if schema is True:
        return True
    if not isinstance(schema, dict):
        return False
    return all(_is_keyword_satisfied(keyword, schema, value) for keyword in schema)


def _is_keyword_satisfied(keyword: str, schema: dict[str, Json], value: Json) -> bool:
    if keyword in _ANNOTATION_KEYWORDS:
        return True
    argument = schema[keyword]
    match keyword:
        case "type":
            return (
                isinstance(argument, str)
                and argument in _TYPE_CHECKS
                and _TYPE_CHECKS[argument](value)
            )
        case "enum":
            return isinstance(value, str) and isinstance(argument, list) and value in argument
        case "anyOf":
            return isinstance(argument, list) and any(
                is_surely_valid(option, value) for option in argument
            )
        case "items":
            return not isinstance(value, list) or all(
                is_surely_valid(argument, item) for item in value
            )
        case "properties":
            return _are_properties_valid(argument, value)
        case "required":
            return isinstance(value, dict) and all(name in value for name in argument)
        case "additionalProperties":
            return _are_additional_properties_valid(argument, schema.get("properties", {}), value)
        case _:
            return False


def _are_properties_valid(properties: Json, value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    return all(
        is_surely_valid(schema, value[name]) for name, schema in properties.items() if name in value
    )


def _are_additional_properties_valid(schema: Json, known: Mapping[str, Json], value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    return all(is_surely_valid(schema, item) for name, item in value.items() if name not in known)


def find_schema_problems(schema: dict[str, Json]) -> list[str]:
    """Returns the problems of a JSON Schema; an empty list if the schema is valid."""
    from runnel.authoring import json_schema

    return json_schema.find_schema_problems(schema)


def find_value_problems(schema: dict[str, Json], value: Json, *, where: str) -> list[str]:
    """Returns the problems of a value, each with its path below `where`; no problems if it fits."""
    if is_surely_valid(schema, value):
        return []
    from runnel.authoring import json_schema

    return json_schema.find_value_problems(schema, value, where=where)


def check_input(workflow: Workflow, value: Json, *, where: str = "input") -> None:
    """Raises InvalidInputError, which lists every problem, if the input does not fit the schema.

    A workflow without a schema accepts any input. `where` names the input in the problems.
    """
    if workflow.input is None:
        return
    problems = find_value_problems(workflow.input, value, where=where)
    if problems:
        head = f"the input does not fit workflow {quote_name(workflow.name)}"
        raise InvalidInputError(_format_problems(head, problems), problems=problems)


class CheckedInput(msgspec.Struct, frozen=True):
    """An input that fits the schema. The client of a store does not check the input again."""

    value: Json


def parse_assignments(
    assignments: Iterable[str], *, subject: str = "the input", schema: dict[str, Json] | None = None
) -> dict[str, Json]:
    """Parses `count=3 user.name=Ada tags:=["a"]` into one object.

    After `=`, valid JSON is parsed as JSON, and any other value is text. So `3` is a number, and
    `"3"` is the text 3. If the schema allows only text for the name, `3` is text as well. After
    `:=`, the value must be JSON. Dots in a name address fields of nested objects.

    Raises InputError, which lists every problem.
    """
    assigned: dict[str, Json] = {}
    problems: list[str] = []
    for assignment in assignments:
        try:
            _assign(assigned, assignment, schema)
        except _AssignmentError as error:
            problems.append(f"{quote_name(assignment)}: {error}")
    if problems:
        raise InputError(_format_problems(f"{subject} can't be read", problems))
    return assigned


def choose_reading(
    schema: dict[str, Json] | None, path: Sequence[str], readings: Sequence[Json]
) -> Json:
    """Returns the first of `readings` that the schema allows at `path`.

    `readings` are the possible values of one text. If the schema allows none of them, returns the
    first reading.
    """
    subschema: Json = schema
    for name in path:
        properties = subschema.get("properties") if isinstance(subschema, dict) else None
        subschema = properties.get(name) if isinstance(properties, dict) else None
    if schema is None or not isinstance(subschema, dict):
        return readings[0]
    subschema = {**subschema, "$defs": schema.get("$defs", {})}
    fitting = (
        reading for reading in readings if not find_value_problems(subschema, reading, where="")
    )
    return next(fitting, readings[0])


class _AssignmentError(Exception):
    """An assignment such as `count=3` is invalid. The message says why."""


def _assign(assigned: dict[str, Json], assignment: str, schema: dict[str, Json] | None) -> None:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise _AssignmentError("expected name=value")
    must_be_json = name.endswith(":")
    path = name.removesuffix(":").strip().split(".")
    if not all(path):
        raise _AssignmentError("expected a name before '=', such as count=3 or user.name=Ada")
    value = _parse_value(text, must_be_json=must_be_json)
    if not must_be_json and not isinstance(value, str):
        value = choose_reading(schema, path, [value, text])
    _insert_value(assigned, path, value)


def _parse_value(text: str, *, must_be_json: bool) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if must_be_json:
            raise _AssignmentError(f"expected JSON after ':=': {error}") from error
        return text


def _insert_value(assigned: dict[str, Json], path: list[str], value: Json) -> None:
    holder = assigned
    for depth, step in enumerate(path[:-1], start=1):
        holder = holder.setdefault(step, {})
        if not isinstance(holder, dict):
            raise _AssignmentError(f"{quote_name('.'.join(path[:depth]))} already has a value")
    if path[-1] in holder:
        raise _AssignmentError(f"{quote_name('.'.join(path))} is given twice; keep one")
    holder[path[-1]] = value


def _format_problems(head: str, problems: list[str]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{head}: {count}" + "".join(f"\n  - {problem}" for problem in problems)
