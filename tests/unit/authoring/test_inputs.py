"""The input of an execution: the check against the schema, and assignments on the command line."""

from typing import Any

import pytest

from runnel.authoring.input_schema import (
    check_input,
    find_schema_problems,
    find_value_problems,
    parse_assignments,
)
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError, InvalidInputError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "users": {"type": "array", "items": {"$ref": "#/$defs/user"}},
        "odd key": {"type": "string", "maxLength": 3},
    },
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"user": {"type": "object", "required": ["name"]}},
}


def with_schema(schema: dict[str, Any] | None) -> Workflow:
    return Workflow(name="w", nodes=(), input=schema)


@pytest.mark.parametrize("value", [{"count": 1}, {"count": 3, "users": [{"name": "Ada"}]}])
def test_an_input_that_fits_the_schema_is_accepted(value: Any) -> None:
    check_input(with_schema(SCHEMA), value)

    assert True, "nothing was raised"


@pytest.mark.parametrize("value", [None, 3, "text", {"any": ["thing"]}])
def test_without_a_schema_any_input_fits(value: Any) -> None:
    check_input(with_schema(None), value)

    assert True, "nothing was raised"


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"count": "x"}, ["input.count: expected a whole number, got 'x'"]),
        ({"count": 0}, ["input.count: expected at least 1, got 0"]),
        ({}, ["input: the field 'count' is missing"]),
        (3, ["input: expected an object, got 3"]),
        ({"count": 1, "users": [{}]}, ["input.users[0]: the field 'name' is missing"]),
        (
            {"count": 1, "odd key": "long"},
            ["input['odd key']: expected a text of at most 3 characters, got 'long'"],
        ),
        (
            {"count": True, "usres": []},
            [
                "input.count: expected a whole number, got true",
                "input: unknown field 'usres'; expected 'count', 'odd key', 'users'",
            ],
        ),
    ],
)
def test_an_input_that_does_not_fit_is_refused_with_every_problem(
    value: Any, problems: list[str]
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_input(with_schema(SCHEMA), value)

    head, *reported_problems = str(caught.value).split("\n  - ")
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    assert head == f"the input does not fit workflow 'w': {count}"
    assert reported_problems == problems


def test_an_endlessly_recursive_schema_is_reported_as_a_problem() -> None:
    with pytest.raises(InvalidInputError, match="refers to itself endlessly"):
        check_input(with_schema({"$ref": "#"}), {})


def test_a_huge_value_is_shortened_in_the_message() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_input(with_schema({"type": "integer"}), "x" * 1_000_000)

    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], {}),
        (["name=Ada"], {"name": "Ada"}),
        (["n=3", "f=1.5", "yes=true", "none=null"], {"n": 3, "f": 1.5, "yes": True, "none": None}),
        (['text="3"'], {"text": "3"}),
        (["list=[1, 2]", 'object={"a": 1}'], {"list": [1, 2], "object": {"a": 1}}),
        (["a.b=1", "a.c.d=x"], {"a": {"b": 1, "c": {"d": "x"}}}),
        (["tags:=[1]"], {"tags": [1]}),
        (["url=https://example.com/?a=b"], {"url": "https://example.com/?a=b"}),
        (["empty="], {"empty": ""}),
        (["nan=NaN", "broken=[1"], {"nan": "NaN", "broken": "[1"}),
        (["object={}", "object.key=1"], {"object": {"key": 1}}),
    ],
)
def test_assignments_become_one_object(assignments: list[str], expected: Any) -> None:
    assert parse_assignments(assignments) == expected


@pytest.mark.parametrize(
    ("assignments", "problems"),
    [
        (["count"], ["'count': expected name=value"]),
        (["=3"], ["'=3': expected a name before '=', such as count=3 or user.name=Ada"]),
        (["a..b=3"], ["'a..b=3': expected a name before '=', such as count=3 or user.name=Ada"]),
        (["a=1", "a=2"], ["'a=2': 'a' is given twice; keep one"]),
        (["a=1", "a.b=2"], ["'a.b=2': 'a' already has a value"]),
        (
            ["a:=x", "b"],
            [
                "'a:=x': expected JSON after ':=': JSON is malformed: invalid character (byte 0)",
                "'b': expected name=value",
            ],
        ),
    ],
)
def test_invalid_assignments_are_refused(assignments: list[str], problems: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_assignments(assignments)

    assert str(caught.value).split("\n  - ")[1:] == problems


MEANT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "zip": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "user": {"type": "object", "properties": {"phone": {"$ref": "#/$defs/phone"}}},
        "order": {"anyOf": [{"$ref": "#/$defs/order"}, {"type": "null"}]},
    },
    "$defs": {
        "phone": {"type": "string", "minLength": 3},
        "order": {"type": "object", "properties": {"total": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("zip=10115", {"zip": "10115"}),
        ("zip=true", {"zip": "true"}),
        ('zip="3"', {"zip": "3"}),
        ("zip:=3", {"zip": 3}),
        ("note=null", {"note": None}),
        ("note=7", {"note": "7"}),
        ("count=7", {"count": 7}),
        ("count=many", {"count": "many"}),
        ("user.phone=112", {"user": {"phone": "112"}}),
        ("order.total=1.20", {"order": {"total": "1.20"}}),
        ("user.name=112", {"user": {"name": 112}}),
        ("other=112", {"other": 112}),
        ("zip.code=112", {"zip": {"code": 112}}),
    ],
)
def test_a_value_is_read_as_text_if_the_schema_allows_only_text(word: str, value: Any) -> None:
    assert parse_assignments([word], schema=MEANT) == value


def double_references(levels: int) -> dict[str, Any]:
    """A schema of `levels` parts that jsonschema would check 2 ** levels times."""
    parts: dict[str, Any] = {f"a{levels}": {"type": "object"}}
    for level in range(levels):
        parts[f"a{level}"] = {"allOf": [{"$ref": f"#/$defs/a{level + 1}"} for _ in range(2)]}
    return {"$ref": "#/$defs/a0", "$defs": parts}


def test_a_schema_that_refers_to_its_parts_too_often_is_refused() -> None:
    expected = (
        "more than 1,000 schemas describe one value, counted by following $ref, allOf, anyOf and "
        "oneOf; refer to each part once"
    )

    assert find_schema_problems(double_references(40)) == [expected]
    assert find_schema_problems(double_references(5)) == []


def test_a_schema_whose_part_has_a_dialect_of_its_own_is_refused() -> None:
    part = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

    problems = find_schema_problems({"properties": {"a": part}})

    assert problems == ["$schema: expected only in the schema itself, not in a part of it"]


def test_an_input_is_refused_if_a_stored_schema_refers_to_its_parts_too_often() -> None:
    with pytest.raises(InvalidInputError, match="the check follows too many \\$ref of the schema"):
        check_input(with_schema(double_references(40)), {})


def test_a_nested_input_is_refused_if_its_schema_doubles_the_checks_at_each_level() -> None:
    schema: dict[str, Any] = {"allOf": [{"properties": {"child": {"$ref": "#"}}} for _ in range(2)]}
    value: Any = {}
    for _ in range(30):
        value = {"child": value}

    with pytest.raises(InvalidInputError, match="the check follows too many \\$ref of the schema"):
        check_input(with_schema(schema), value)


def test_a_long_list_may_follow_a_reference_for_each_item() -> None:
    users = [{"name": str(number)} for number in range(2_000)]

    check_input(with_schema(SCHEMA), {"count": 1, "users": users})

    assert True, "nothing was raised"


USER = {"$ref": "#/$defs/user"}
DEFS = {"user": {"type": "object", "required": ["id"]}}
LIST_OR_NULL = {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
SENTENCES: list[tuple[dict[str, Json], Json, str]] = [
    (
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "no",
        ": expected a whole number or null, got 'no'",
    ),
    (LIST_OR_NULL, "no", ": expected a list or null, got 'no'"),
    (LIST_OR_NULL, [1, "x"], "[1]: expected a whole number, got 'x'"),
    (
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        3,
        ": expected a value that fits only one of: a whole number or a number, got 3",
    ),
    (
        {"oneOf": [{"type": "integer"}, {"type": "string", "minLength": 3}]},
        None,
        ": expected a whole number or a text of at least 3 characters, got null",
    ),
    ({"anyOf": [USER, {"type": "null"}], "$defs": DEFS}, 3, ": expected an object or null, got 3"),
    ({"anyOf": [USER, {"type": "null"}], "$defs": DEFS}, {}, ": the field 'id' is missing"),
    ({"uniqueItems": True}, [2, 1, 2], ": expected a list without equal items, got 2 twice"),
    ({"contains": {"type": "string"}}, [1], ": expected a list with a text, got a list of 1 item"),
    ({"minItems": 2}, [1], ": expected a list of at least 2 items, got a list of 1 item"),
    (
        {"minProperties": 2},
        {"a": 1},
        ": expected an object with at least 2 fields, got an object with 1 field",
    ),
    (
        {"propertyNames": {"pattern": "^x"}},
        {"a": 1},
        ": expected a text that matches '^x' as the name of a field, got 'a'",
    ),
    (
        {"dependentRequired": {"a": ["b"]}},
        {"a": 1},
        ": the field 'b' is missing, because 'a' needs it",
    ),
    ({"not": {"type": "string"}}, "a", ": expected anything but a text, got 'a'"),
    (
        {"prefixItems": [{"type": "string"}], "items": False},
        ["a", 1],
        ": expected a list of at most 1 item, got a list of 2 items",
    ),
    (
        {"unevaluatedProperties": False, "properties": {"b": True}},
        {"a": 1},
        ": unknown field 'a'; expected 'b'",
    ),
    (
        {"additionalProperties": False, "patternProperties": {"^x": True}},
        {"a": 1},
        ": unknown field 'a'; expected names that match '^x'",
    ),
]


@pytest.mark.parametrize(("schema", "value", "problem"), SENTENCES)
def test_a_problem_of_an_input_says_what_was_expected_and_what_was_found(
    schema: dict[str, Json], value: Json, problem: str
) -> None:
    assert find_value_problems(schema, value, where="input") == [f"input{problem}"]
