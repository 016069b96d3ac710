"""An input that passes the quick check fits its schema."""

from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from runnel.authoring.input_schema import is_surely_valid
from runnel.authoring.json_schema import find_value_problems
from runnel.core.values import Json

types = st.recursive(
    st.sampled_from([str, int, float, bool, None, Any, Literal["a", "b"]]),
    lambda below: (
        below.map(lambda kind: list[kind])  # type: ignore[valid-type]  # made at run time
        | below.map(lambda kind: dict[str, kind])  # type: ignore[valid-type]  # as above
        | below.map(lambda kind: kind if kind in {Any, None} else kind | None)
    ),
    max_leaves=3,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from("abc"),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from("xyz"), below),
    max_leaves=4,
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Json]:
    names = draw(st.lists(st.sampled_from("xyz"), unique=True))
    return {
        "type": "object",
        "properties": {name: msgspec.json.schema(draw(types)) for name in names},
        "required": [name for name in names if draw(st.booleans())],
        "additionalProperties": draw(st.booleans()),
    }


@given(schemas(), st.dictionaries(st.sampled_from("xyz"), values) | values)
def test_an_input_that_passes_the_quick_check_fits(schema: dict[str, Json], value: Json) -> None:
    if is_surely_valid(schema, value):
        assert find_value_problems(schema, value, where="input") == []


def test_an_input_of_plain_types_passes_the_quick_check() -> None:
    schema = {
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "sizes": {"type": "array", "items": {"type": "integer"}, "default": []},
            "by": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["url"],
        "additionalProperties": False,
    }

    assert is_surely_valid(schema, {"url": "x", "sizes": [1, 2], "by": None})
    assert not is_surely_valid(schema, {"url": "x", "sizes": [1, "2"]})
    assert not is_surely_valid(schema, {"url": "x", "more": 1})
    assert not is_surely_valid(schema, {"sizes": []})
    assert is_surely_valid({"type": "string", "format": "date"}, "2026-11-16")
    assert not is_surely_valid({"type": "string", "format": "date"}, "2026-11-31")
    assert not is_surely_valid({"type": "string", "contentMediaType": "x"}, "x")
