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
