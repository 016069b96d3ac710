"""The input of an execution: checked against the workflow's schema, or put together from words."""

from collections.abc import Iterable, Sequence

import msgspec

from runnel.authoring.schema import value_problems
from runnel.core.checks.wording import quoted
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError, InvalidInputError


def check_input(workflow: Workflow, value: Json) -> None:
    """Raises InvalidInputError with every problem; a workflow without a schema takes anything."""
    if workflow.input is None:
        return
    problems = value_problems(workflow.input, value, where="input")
    if problems:
        head = f"the input does not fit workflow {quoted(workflow.name)}"
        raise InvalidInputError(_listed(head, problems))


def parse_assignments(
    words: Iterable[str], *, what: str = "the input", schema: dict[str, Json] | None = None
) -> dict[str, Json]:
    """`count=3 user.name=Ada tags:=["a"]` as one object; raises InputError with every problem.

    After `=` a value is JSON when it can be read as JSON, otherwise text (so '"3"' is the text 3);
    where the schema takes only a text, 3 is one, too. After `:=` it must be JSON. Dots in the name
    lead into objects.
    """
    found: dict[str, Json] = {}
    problems: list[str] = []
    for word in words:
        try:
            _assign(found, word, schema)
        except _RefusedError as error:
            problems.append(f"{quoted(word)}: {error}")
    if problems:
        raise InputError(_listed(f"{what} can't be read", problems))
    return found


def as_meant(schema: dict[str, Json] | None, path: Sequence[str], readings: Sequence[Json]) -> Json:
    """The first of several readings of a text that the schema takes there; if none, the first."""
    wanted: Json = schema
    for name in path:
        properties = wanted.get("properties") if isinstance(wanted, dict) else None
        wanted = properties.get(name) if isinstance(properties, dict) else None
    if schema is None or not isinstance(wanted, dict):
        return readings[0]
    wanted = {**wanted, "$defs": schema.get("$defs", {})}
    fitting = (each for each in readings if not value_problems(wanted, each, where=""))
    return next(fitting, readings[0])


class _RefusedError(Exception):
    """Why one assignment is wrong."""


def _assign(found: dict[str, Json], word: str, schema: dict[str, Json] | None) -> None:
    name, equals, text = word.partition("=")
    if not equals:
        raise _RefusedError("expected name=value")
    must_be_json = name.endswith(":")
    path = name.removesuffix(":").strip().split(".")
    if not all(path):
        raise _RefusedError("expected a name before '=', such as count=3 or user.name=Ada")
    value = _value(text, must_be_json=must_be_json)
    if not must_be_json and not isinstance(value, str):
        value = as_meant(schema, path, [value, text])
    _put(found, path, value)


def _value(text: str, *, must_be_json: bool) -> Json:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        if must_be_json:
            raise _RefusedError(f"expected JSON after ':=': {error}") from error
        return text


def _put(found: dict[str, Json], path: list[str], value: Json) -> None:
    holder = found
    for depth, step in enumerate(path[:-1], start=1):
        holder = holder.setdefault(step, {})
        if not isinstance(holder, dict):
            raise _RefusedError(f"{quoted('.'.join(path[:depth]))} has a value already")
    if path[-1] in holder:
        raise _RefusedError(f"{quoted('.'.join(path))} is given twice; keep one")
    holder[path[-1]] = value


def _listed(head: str, problems: list[str]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{head}: {count}" + "".join(f"\n  - {problem}" for problem in problems)
