"""No schema and no input may hold up the check of an input for long."""

import time
from typing import Any

import pytest

from runnel.authoring.input_schema import find_value_problems, is_surely_valid
from runnel.authoring.json_schema import ERRORS_MAX, find_schema_problems

LIMIT_S = 1.0


def make_node(field: str) -> dict[str, Any]:
    child = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"type": "null"}]}
    return {
        "type": "object",
        "properties": {"child": child, field: {"type": "integer"}},
        "required": ["child", field],
    }


def test_a_deep_value_of_a_recursive_union_is_checked_in_linear_time() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": make_node("a"), "B": make_node("b")}}
    value: Any = {"child": None, "b": 1}
    for _ in range(40):
        value = {"child": value, "b": 1}
    value = {"child": value, "a": 1}
    began = time.process_time()

    assert is_surely_valid(schema, value)
    assert time.process_time() - began < LIMIT_S


def test_a_schema_that_refers_to_itself_twice_ends() -> None:
    itself = {"$ref": "#/$defs/x"}
    schema = {"$defs": {"x": {"anyOf": [itself, itself]}}, "properties": {"a": itself}}
    assert find_schema_problems(schema) == []
    began = time.process_time()

    assert find_value_problems(schema, {"a": 1}, where="input")
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("is_simple", [True, False])
def test_many_unique_objects_are_checked_in_linear_time(is_simple: bool) -> None:
    limit = {} if is_simple else {"minItems": 1, "maxProperties": 5}
    schema = {"properties": {"x": {"type": "array", "uniqueItems": True, **limit}}}
    objects = [{"n": number} for number in range(10_000)]
    began = time.process_time()

    assert find_value_problems(schema, {"x": objects}, where="input") == []
    assert find_value_problems(schema, {"x": [*objects, {"n": 9_999}]}, where="input")
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, True, "1", None], True),
        ([1, 1.0], False),
        ([[1], [True]], True),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([[], {}], True),
    ],
)
def test_items_are_equal_as_in_json_schema(items: list[Any], is_unique: bool) -> None:
    schema = {"type": "array", "uniqueItems": True}

    assert (find_value_problems(schema, items, where="input") == []) is is_unique


def test_a_value_with_many_errors_reports_the_first_ones() -> None:
    schema = {"type": "array", "items": {"type": "string", "minLength": 1}}
    began = time.process_time()

    problems = find_value_problems(schema, list(range(100_000)), where="input")

    assert len(problems) == ERRORS_MAX
    assert time.process_time() - began < LIMIT_S
