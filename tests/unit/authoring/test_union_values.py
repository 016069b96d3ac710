"""Unions of classes that msgspec can not distinguish: the order of members, and the time."""

import time
from dataclasses import dataclass
from typing import Any, Union

import pytest

from runnel.authoring.signatures import compile_signature
from runnel.authoring.single_types import MismatchError
from runnel.authoring.value_types import compile_type


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str


@dataclass
class Plus:
    left: "Plus | Minus | None"
    plus: int


@dataclass
class Minus:
    left: "Plus | Minus | None"
    minus: int


def test_the_order_of_a_union_does_not_depend_on_unions_compiled_before() -> None:
    value = {"name": "Rex"}
    for first, second in ((Cat | Dog, Dog | Cat), (Union[Cat, Dog], Union[Dog, Cat])):  # noqa: UP007
        assert type(compile_type(first).decode(value, "pet")) is Cat
        assert type(compile_type(second).decode(value, "pet")) is Dog
        assert type(compile_type(list[second]).decode([value], "pets")[0]) is Dog  # type: ignore[valid-type]


def test_the_order_of_a_parameter_does_not_depend_on_functions_compiled_before() -> None:
    def first(pet: Cat | Dog, pets: list[Cat | Dog]) -> None: ...
    def second(pet: Dog | Cat, pets: list[Dog | Cat]) -> None: ...

    arguments = {"pet": {"name": "Rex"}, "pets": [{"name": "Rex"}, None]}
    for function, kind in ((first, Cat), (second, Dog)):
        signature = compile_signature(function)
        assert signature is not None
        decoded = signature.decode_arguments(arguments)
        assert (type(decoded["pet"]), type(decoded["pets"][0])) == (kind, kind)


def nest(levels: int, innermost: Any) -> Any:
    value = {"left": None, "minus": innermost}
    for _ in range(levels):
        value = {"left": value, "minus": 1}
    return value


def test_a_deep_value_of_a_recursive_union_is_decoded_in_little_time() -> None:
    kind = compile_type(Plus | Minus)
    began = time.process_time()

    decoded = kind.decode(nest(40, 1), "value")
    with pytest.raises(MismatchError, match="expected"):
        kind.decode(nest(40, "x"), "value")

    assert time.process_time() - began < 1.0
    depth = 0
    while decoded is not None:
        assert type(decoded) is Minus
        decoded, depth = decoded.left, depth + 1
    assert depth == 41


def test_values_of_a_union_at_two_places_are_two_objects() -> None:
    shared = {"name": "Rex"}

    first, second = compile_type(list[Cat | Dog]).decode([shared, shared], "pets")

    assert first == second
    assert first is not second
