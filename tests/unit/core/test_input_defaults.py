"""The defaults of an input schema, filled into an input."""

from typing import Any

import pytest

from runnel.core.input_defaults import DEPTH_MAX, fill_defaults

TENANT = {"type": "string", "default": "acme"}
USER = {"type": "object", "properties": {"tenant": TENANT}}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


FILLED = [
    pytest.param(of(tenant=TENANT), {}, {"tenant": "acme"}, id="a missing property"),
    pytest.param(of(tenant=TENANT), {"x": 1}, {"x": 1, "tenant": "acme"}, id="beside others"),
    pytest.param(of(x={"default": None}), {}, {"x": None}, id="a default of null"),
    pytest.param(of(default=TENANT), {}, {"default": "acme"}, id="a property named default"),
    pytest.param(of(user=USER), {"user": {}}, {"user": {"tenant": "acme"}}, id="nested"),
    pytest.param(of(user=USER), {}, {}, id="no object is invented for its properties"),
    pytest.param(
        of(users={"type": "array", "items": USER}),
        {"users": [{}, {"tenant": "b"}]},
        {"users": [{"tenant": "acme"}, {"tenant": "b"}]},
        id="items",
    ),
    pytest.param(
        {"$defs": {"a/b": USER}, **of(user={"$ref": "#/$defs/a~1b"})},
        {"user": {}},
        {"user": {"tenant": "acme"}},
        id="a reference",
    ),
    pytest.param(
        of(user={"anyOf": [USER, {"type": "null"}]}),
        {"user": {}},
        {"user": {"tenant": "acme"}},
        id="an optional object",
    ),
    pytest.param(
        {"allOf": [of(a=TENANT), of(b=TENANT)]}, {}, {"a": "acme", "b": "acme"}, id="allOf"
    ),
    pytest.param(
        of(user={**USER, "default": {}}), {}, {"user": {"tenant": "acme"}}, id="inside a default"
    ),
    pytest.param(
        {"$defs": {"u": USER}, **of(user={"$ref": "#/$defs/u", "default": {}})},
        {},
        {"user": {"tenant": "acme"}},
        id="inside a default, by a reference",
    ),
    pytest.param(
        of(users={"type": "array", "items": USER, "default": [{}]}),
        {},
        {"users": [{"tenant": "acme"}]},
        id="inside a default that is a list",
    ),
]


@pytest.mark.parametrize(("schema", "value", "expected"), FILLED)
def test_a_default_replaces_a_missing_property(
    schema: dict[str, Any], value: Any, expected: Any
) -> None:
    filled = fill_defaults(schema, value)

    assert filled == expected
    assert fill_defaults(schema, filled) is filled


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(None, {}, id="no schema"),
        pytest.param({}, {}, id="an empty schema"),
        pytest.param(of(tenant=TENANT), {"tenant": None}, id="an explicit null is a value"),
        pytest.param(of(tenant=TENANT), {"tenant": ""}, id="an empty text is a value"),
        pytest.param(of(tenant=TENANT), [1], id="a value of another type"),
        pytest.param(of(user=USER), {"user": None}, id="null instead of an object"),
        pytest.param(
            of(user={"anyOf": [USER, of(name=TENANT)]}),
            {"user": {}},
            id="which option is not known",
        ),
        pytest.param({"$ref": "#"}, {}, id="a schema that refers to itself"),
        pytest.param({"$ref": "https://example.com/x"}, {}, id="a reference to another schema"),
        pytest.param({"$ref": "#/$defs/x/y"}, {}, id="a reference to nothing"),
    ],
)
def test_an_input_without_a_missing_default_stays_the_same_object(schema: Any, value: Any) -> None:
    assert fill_defaults(schema, value) is value


def test_the_caller_keeps_its_input_and_the_schema_its_default() -> None:
    schema = of(tags={"type": "array", "default": ["a"]})
    value: dict[str, Any] = {"x": 1}

    filled: Any = fill_defaults(schema, value)

    assert filled == {"x": 1, "tags": ["a"]}
    assert value == {"x": 1}


def test_a_recursive_schema_fills_every_level_up_to_a_limit() -> None:
    schema: dict[str, Any] = {"properties": {"child": {"$ref": "#"}, "n": {"default": 1}}}
    value: Any = {}
    for _ in range(2 * DEPTH_MAX):
        value = {"child": value}

    filled: Any = fill_defaults(schema, value)

    depth = 0
    while "n" in filled:
        depth += 1
        filled = filled["child"]
    assert depth == DEPTH_MAX + 1


def test_a_schema_that_refers_to_its_parts_twice_takes_no_longer_at_each_level() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/a0", "$defs": {"a40": of(tenant=TENANT)}}
    for level in range(40):
        next_level = {"$ref": f"#/$defs/a{level + 1}"}
        schema["$defs"][f"a{level}"] = {"allOf": [next_level, dict(next_level)]}

    assert fill_defaults(schema, {}) == {"tenant": "acme"}


def test_nested_values_that_two_schemas_describe_take_no_longer_at_each_level() -> None:
    schema: dict[str, Any] = {
        "allOf": [{"properties": {"child": {"$ref": "#"}}} for _ in range(2)],
        "properties": {"n": {"default": 1}},
    }
    value: Any = {}
    for _ in range(40):
        value = {"child": value}

    filled: Any = fill_defaults(schema, value)

    for _ in range(40):
        filled = filled["child"]
    assert filled == {"n": 1}


def test_a_default_that_contains_itself_ends() -> None:
    schema: dict[str, Any] = {
        "properties": {name: {"$ref": "#", "default": {}} for name in "abcdefghijkl"}
    }

    filled: Any = fill_defaults(schema, {})

    assert filled["a"]["b"]["c"]
    assert "a" not in filled["a"]
