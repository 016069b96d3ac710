"""Checks the input of an execution against the workflow's schema, and parses `name=value`.

Importing jsonschema takes about 150 ms, more than all other parts of a cold start. So jsonschema is
imported only for a workflow file with an `input` schema, and for an input that the quick check does
not accept.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from runnel.authoring.text_formats import has_encoding, has_format
from runnel.core.message_text import quote_name
from runnel.core.values import Json, find_repeated_item
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


_REFERENCE_PREFIX = "#/$defs/"
_REFERENCES_MAX = 100


class QuickCheck:
    """Accepts values that certainly fit. `root` is the whole schema, to which `$ref` refers.

    A method per keyword checks a value against that keyword of a schema. Accepts nothing after
    `steps_max` steps. A step takes about 1 µs.
    """

    def __init__(self, root: Json, steps_max: float = math.inf) -> None:
        self._root = root
        self._steps_left = steps_max
        self._depth = 0
        # Whether each part of `$defs` accepts a value, by name and id of the value. Without it, a
        # union that contains itself checks each level of a value twice as often as the level above.
        self._known: dict[tuple[str, int], bool] = {}

    def accepts(self, schema: Json, value: Json) -> bool:
        if schema is True:
            return True
        self._steps_left -= 1
        if not isinstance(schema, dict) or self._steps_left < 0:
            return False
        for keyword in schema:
            check = _KEYWORD_CHECKS.get(keyword)
            if check is None or not check(self, schema, value):
                return False
        return True

    def has_type(self, schema: dict[str, Json], value: Json) -> bool:
        name = schema["type"]
        check = _TYPE_CHECKS.get(name) if isinstance(name, str) else None
        return check is not None and check(value)

    def is_in_enum(self, schema: dict[str, Json], value: Json) -> bool:
        is_simple = isinstance(value, str) or type(value) is int
        return is_simple and isinstance(schema["enum"], list) and value in schema["enum"]

    def has_format(self, schema: dict[str, Json], value: Json) -> bool:
        name = schema["format"]
        return isinstance(value, str) and isinstance(name, str) and has_format(value, name)

    def has_encoding(self, schema: dict[str, Json], value: Json) -> bool:
        name = schema["contentEncoding"]
        return isinstance(value, str) and isinstance(name, str) and has_encoding(value, name)

    def fits_any(self, schema: dict[str, Json], value: Json) -> bool:
        options = schema["anyOf"]
        return isinstance(options, list) and any(self.accepts(option, value) for option in options)

    def fits_reference(self, schema: dict[str, Json], value: Json) -> bool:
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith(_REFERENCE_PREFIX):
            return False
        definitions = self._root.get("$defs") if isinstance(self._root, dict) else None
        name = reference.removeprefix(_REFERENCE_PREFIX)
        if not isinstance(definitions, dict) or name not in definitions:
            return False
        key = name, id(value)
        if key not in self._known:
            self._known[key] = False  # a part that refers to itself
            self._depth += 1
            try:
                fits = self._depth <= _REFERENCES_MAX and self.accepts(definitions[name], value)
            finally:
                self._depth -= 1
            self._known[key] = fits
        return self._known[key]

    def is_root(self, schema: dict[str, Json], _value: Json) -> bool:
        return schema is self._root

    def fit_items(self, schema: dict[str, Json], value: Json) -> bool:
        if not isinstance(value, list):
            return True
        others = value[len(schema["prefixItems"]) :] if "prefixItems" in schema else value
        return all(self.accepts(schema["items"], item) for item in others)

    def fit_first_items(self, schema: dict[str, Json], value: Json) -> bool:
        return isinstance(value, list) and all(map(self.accepts, schema["prefixItems"], value))

    def has_enough_items(self, schema: dict[str, Json], value: Json) -> bool:
        return isinstance(value, list) and len(value) >= schema["minItems"]

    def has_few_items(self, schema: dict[str, Json], value: Json) -> bool:
        return isinstance(value, list) and len(value) <= schema["maxItems"]

    def has_unique_items(self, _schema: dict[str, Json], value: Json) -> bool:
        try:
            return isinstance(value, list) and find_repeated_item(value) is None
        except RecursionError:
            return False

    def fit_properties(self, schema: dict[str, Json], value: Json) -> bool:
        return isinstance(value, dict) and all(
            self.accepts(part, value[name])
            for name, part in schema["properties"].items()
            if name in value
        )

    def fit_names(self, schema: dict[str, Json], value: Json) -> bool:
        names = schema["propertyNames"]
        return isinstance(value, dict) and all(self.accepts(names, name) for name in value)

    def has_pattern(self, schema: dict[str, Json], value: Json) -> bool:
        from runnel.authoring.pattern_cost import estimate_cost

        chars_max = estimate_cost(schema["pattern"]).chars_max
        is_short = isinstance(value, str) and (chars_max is None or len(value) <= chars_max)
        return is_short and re.search(schema["pattern"], value) is not None

    def is_large_enough(self, schema: dict[str, Json], value: Json) -> bool:
        return _TYPE_CHECKS["number"](value) and value >= schema["minimum"]

    def is_small_enough(self, schema: dict[str, Json], value: Json) -> bool:
        return _TYPE_CHECKS["number"](value) and value <= schema["maximum"]

    def has_required(self, schema: dict[str, Json], value: Json) -> bool:
        return isinstance(value, dict) and all(name in value for name in schema["required"])

    def fit_additional_properties(self, schema: dict[str, Json], value: Json) -> bool:
        if not isinstance(value, dict):
            return False
        known = schema.get("properties", {})
        part = schema["additionalProperties"]
        return all(self.accepts(part, item) for name, item in value.items() if name not in known)


def _ignore(_check: QuickCheck, _schema: dict[str, Json], _value: Json) -> bool:
    return True


_KEYWORD_CHECKS: Mapping[str, Callable[[QuickCheck, dict[str, Json], Json], bool]] = {
    **dict.fromkeys(("default", "title", "description", "examples"), _ignore),
    "type": QuickCheck.has_type,
    "enum": QuickCheck.is_in_enum,
    "format": QuickCheck.has_format,
    "contentEncoding": QuickCheck.has_encoding,
    "anyOf": QuickCheck.fits_any,
    "$ref": QuickCheck.fits_reference,
    "$defs": QuickCheck.is_root,
    "items": QuickCheck.fit_items,
    "prefixItems": QuickCheck.fit_first_items,
    "minItems": QuickCheck.has_enough_items,
    "maxItems": QuickCheck.has_few_items,
    "uniqueItems": QuickCheck.has_unique_items,
    "properties": QuickCheck.fit_properties,
    "required": QuickCheck.has_required,
    "propertyNames": QuickCheck.fit_names,
    "pattern": QuickCheck.has_pattern,
    "minimum": QuickCheck.is_large_enough,
    "maximum": QuickCheck.is_small_enough,
    "additionalProperties": QuickCheck.fit_additional_properties,
}


def is_surely_valid(schema: Json, value: Json, *, steps_max: float = math.inf) -> bool:
    """Returns True if the value certainly fits the schema; False if only jsonschema can decide.

    Also returns False if the quick check needs more steps than `steps_max`.
    """
    return QuickCheck(schema, steps_max).accepts(schema, value)


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
        raise build_input_error(workflow.name, problems)


def build_input_error(name: str, problems: list[str]) -> InvalidInputError:
    """Builds the error for an input that does not fit the workflow of this name."""
    head = f"the input does not fit workflow {quote_name(name)}"
    return InvalidInputError(_format_problems(head, problems), problems=problems)


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
        subschema = _find_property(schema, subschema, name)
    if schema is None or not isinstance(subschema, dict):
        return readings[0]
    subschema = {**subschema, "$defs": schema.get("$defs", {})}
    fitting = (
        reading for reading in readings if not find_value_problems(subschema, reading, where="")
    )
    return next(fitting, readings[0])


def _find_property(root: Json, schema: Json, name: str) -> Json:
    """Returns the schema of a property, also below a `$ref` and in an option of `anyOf`."""
    for _ in range(_REFERENCES_MAX):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            break
        schema = root.get("$defs", {}).get(reference.removeprefix(_REFERENCE_PREFIX))
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties")
    if isinstance(properties, dict):
        return properties.get(name)
    options = schema.get("anyOf")
    found = (_find_property(root, option, name) for option in options or ())
    return next((option for option in found if option is not None), None)


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
