"""Values of random types are equal after they were stored as JSON, and fit the JSON Schema."""

import dataclasses
import datetime as dt
import enum
import itertools
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from runnel.authoring.input_schema import is_surely_valid
from runnel.authoring.json_schema import find_value_problems
from runnel.authoring.storable_values import encode_value, to_json
from runnel.authoring.value_types import build_schemas, compile_type


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
offsets = st.timedeltas(dt.timedelta(hours=-12), dt.timedelta(hours=12)).map(
    lambda offset: dt.timezone(dt.timedelta(minutes=offset // dt.timedelta(minutes=1)))
)
Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type, and a strategy for its values."""

HASHABLE: list[Typed] = [
    (int, st.integers()),
    (str, text),
    (bool, st.booleans()),
    (dt.date, st.dates()),
    (dt.datetime, st.datetimes() | st.datetimes(timezones=offsets)),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
    (uuid.UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (bytes, st.binary(max_size=3)),
    (PurePosixPath, st.sampled_from(["a", "a/b", "/c"]).map(PurePosixPath)),
    (Color, st.sampled_from(Color)),
    (Pair, st.builds(Pair, st.integers(), text)),
]
LEAVES: list[Typed] = [*HASHABLE, (float, st.floats(allow_nan=False, allow_infinity=False))]


_numbers = itertools.count()


def _name_class() -> str:
    """Returns a unique name: msgspec builds no schema of two classes with one qualified name."""
    return f"Made{next(_numbers)}"


def _apply(generic: Any, *args: Any) -> Any:
    """Returns `generic[args]`, which mypy does not accept for types that are values."""
    return generic[args if len(args) > 1 else args[0]]


def _build_fields(fields: list[Typed]) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Returns the types and the strategies of the fields, by name."""
    names = [f"the_field{index}" for index in range(len(fields))]
    kinds = [(name, kind) for name, (kind, _) in zip(names, fields, strict=True)]
    return kinds, {name: values for name, (_, values) in zip(names, fields, strict=True)}


def _make_class(fields: list[Typed]) -> Typed:
    kinds, values = _build_fields(fields)
    kind = dataclasses.make_dataclass(_name_class(), kinds)
    return kind, st.builds(kind, **values)


def _make_struct(fields: list[Typed]) -> Typed:
    kinds, values = _build_fields(fields)
    kind = msgspec.defstruct(_name_class(), kinds, rename="camel")
    return kind, st.builds(kind, **values)


def _make_tuple(fields: list[Typed]) -> Typed:
    return _apply(tuple, *(kind for kind, _ in fields)), st.tuples(*(v for _, v in fields))


def _make_set(item: Typed) -> Typed:
    return _apply(set, item[0]), st.sets(item[1], max_size=3)


WRAPPERS: list[Callable[[Typed], Typed]] = [
    lambda item: (_apply(list, item[0]), st.lists(item[1], max_size=2)),
    lambda item: (_apply(dict, str, item[0]), st.dictionaries(text, item[1], max_size=2)),
    lambda item: (_apply(tuple, item[0], ...), st.lists(item[1], max_size=2).map(tuple)),
    lambda item: (item[0] | None, st.none() | item[1]),
]


def _extend(below: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    several = st.lists(below, min_size=1, max_size=3)
    return (
        st.tuples(st.sampled_from(WRAPPERS), below).map(lambda pair: pair[0](pair[1]))
        | several.map(_make_class)
        | several.map(_make_struct)
        | several.map(_make_tuple)
        | st.sampled_from(HASHABLE).map(_make_set)
    )


typed = st.recursive(st.sampled_from(LEAVES), _extend, max_leaves=5)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    annotation, values = draw(typed)
    return annotation, draw(values)


@given(typed_values())
def test_a_value_of_any_type_survives_its_storage(sample: tuple[Any, Any]) -> None:
    annotation, value = sample
    kind = compile_type(annotation)
    stored = to_json(value)

    assert kind.decode(stored, "value") == value
    assert kind.decode_json(encode_value(value), "value") == value
    assert to_json(kind.decode(stored, "value")) == stored


@given(typed_values())
def test_a_stored_value_of_any_type_fits_its_schema(sample: tuple[Any, Any]) -> None:
    annotation, value = sample
    (part,), definitions = build_schemas([annotation])
    schema = {**part, "$defs": definitions}

    assert find_value_problems(schema, to_json(value), where="value") == []


@given(typed_values(), st.recursive(st.none() | text | st.integers(), st.lists, max_leaves=3))
def test_the_quick_check_accepts_only_what_the_schema_accepts(
    sample: tuple[Any, Any], value: Any
) -> None:
    (part,), definitions = build_schemas([sample[0]])
    schema = {**part, "$defs": definitions}

    if is_surely_valid(schema, value):
        assert find_value_problems(schema, value, where="value") == []
