"""The quick check of a schema accepts only what the library accepts."""

import itertools
import time
from typing import Any

from jsonschema import Draft202012Validator

from runnel.authoring.json_schema import find_schema_problems
from runnel.authoring.schema_keywords import DIALECT, is_surely_schema

KEYWORDS = [
    "type",
    "properties",
    "items",
    "required",
    "enum",
    "const",
    "default",
    "title",
    "description",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "additionalProperties",
    "anyOf",
    "allOf",
    "oneOf",
    "prefixItems",
    "not",
    "if",
    "then",
    "else",
    "$defs",
    "$ref",
    "$comment",
    "contentEncoding",
    "examples",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "contains",
    "minContains",
    "unknown",
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 0.5, 1.0, "", "string", "text"),
    *([], ["a"], ["a", "a"], ["string", "null"], ["string", "string"], [1], [{}], [{"type": 1}]),
    *({}, {"a": {}}, {"a": True}, {"a": 1}, {"type": "string"}, {"type": "text"}, {"a": ["b"]}),
]


def test_a_schema_that_the_quick_check_accepts_is_valid() -> None:
    accepted = 0
    for keyword, value in itertools.product(KEYWORDS, VALUES):
        schema = {"properties": {"x": {keyword: value}}}
        if is_surely_schema(schema):
            accepted += 1
            assert Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(schema), schema
    assert accepted > 150


def test_only_the_newest_dialect_is_checked_quickly() -> None:
    assert is_surely_schema({"$schema": DIALECT})
    assert not is_surely_schema({"$schema": "http://json-schema.org/draft-07/schema#"})


def test_2_000_properties_are_checked_in_milliseconds() -> None:
    part = {"type": "integer", "minimum": 0, "default": 1}
    schema: Any = {"type": "object", "properties": {f"p{n}": part for n in range(2_000)}}
    began = time.process_time()

    assert find_schema_problems(schema) == []
    assert time.process_time() - began < 0.5  # the library needs 1.3 s
