"""Reads the annotations of functions and classes."""

import dataclasses
import sys
import types
import typing
from typing import Any

import msgspec

_QUALIFIERS = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


def unwrap_annotation(annotation: Any) -> Any:
    """Returns the type behind a NewType, an alias or a type variable."""
    if annotation is object:
        return Any
    if isinstance(annotation, typing.NewType):
        return unwrap_annotation(annotation.__supertype__)
    if isinstance(annotation, typing.TypeVar):
        return Any if annotation.__bound__ is None else unwrap_annotation(annotation.__bound__)
    if type(annotation).__name__ == "TypeAliasType":  # Python 3.12 has this type
        return unwrap_annotation(annotation.__value__)
    if typing.get_origin(annotation) in _QUALIFIERS:
        return unwrap_annotation(typing.get_args(annotation)[0])
    return annotation


def list_fields(kind: Any) -> list[tuple[str, str, bool]]:
    """Returns the name of each field of a class, its key in JSON, and whether it is required."""
    if typing.is_typeddict(kind):
        return [(name, name, name in kind.__required_keys__) for name in kind.__annotations__]
    if issubclass(kind, msgspec.Struct):
        return [
            (field.name, field.encode_name, field.required)
            for field in msgspec.structs.fields(kind)
        ]
    missing = dataclasses.MISSING
    return [
        (
            field.name,
            field.name,
            field.init and field.default is missing and field.default_factory is missing,
        )
        for field in dataclasses.fields(kind)
    ]


EVALUATION_ERRORS = (
    NameError,
    TypeError,
    AttributeError,
    SyntaxError,
    ValueError,
    LookupError,
    ImportError,
    RecursionError,
)
"""What the evaluation of an annotation raises, if its names exist only for type checkers."""


def read_hints(owner: Any) -> dict[str, Any]:
    """Returns the annotations of a function or class that can be evaluated.

    A name that exists only for type checkers leaves its own annotation out, and no other one.
    """
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except EVALUATION_ERRORS:
        return _read_hints_one_by_one(owner)


def _read_hints_one_by_one(owner: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    holders = reversed(owner.__mro__) if isinstance(owner, type) else [_unwrap_function(owner)]
    for holder in holders:
        module = sys.modules.get(getattr(holder, "__module__", None) or "")
        names = {**vars(module)} if module is not None else {}
        names |= getattr(holder, "__globals__", {})
        for name, annotation in getattr(holder, "__annotations__", {}).items():
            single = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints |= typing.get_type_hints(single, globalns=names, include_extras=True)
            except EVALUATION_ERRORS:
                continue
    return hints


def _unwrap_function(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
