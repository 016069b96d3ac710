"""The parts of a result's type: which key of the stored JSON a part has, and its own type.

A type that is not known, or is plain JSON, has parts of any name.
"""

import collections.abc
import dataclasses
import datetime as dt
import enum
import types
import typing
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from runnel.authoring.storable_values import PYDANTIC_VALIDATOR
from runnel.authoring.type_hints import list_fields, read_hints, unwrap_annotation

_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_INCOMPARABLE = (Decimal, dt.datetime, dt.time, dt.timedelta, bytes, bytearray)
_TEXTS = (dt.date, UUID, PurePath, enum.Enum, *_INCOMPARABLE)
_EQUALITY = ("==", "!=")


class Member(NamedTuple):
    """A part of a value: its key in the stored JSON, and its annotation; None if not known.

    The key is None if the part is stored like the whole, as the `value` of an enum is.
    """

    key: str | int | None
    annotation: Any


class MemberError(Exception):
    """The part is not stored. The message continues a sentence that names the part."""


def find_member(annotation: Any, key: str | int) -> Member:
    """Returns the part of a value that has this type; raises MemberError if it is not stored."""
    kind, args = _strip(annotation)
    if kind in _MAPPINGS:
        return Member(str(key), args[1] if args else None)
    if isinstance(key, int):
        return Member(key, _find_item_annotation(kind, args, key))
    if not isinstance(kind, type):
        return Member(key, None)
    if issubclass(kind, enum.Enum) and key == "value":
        return Member(None, None)
    if issubclass(kind, _TEXTS):
        raise MemberError(f"is computed from a {kind.__name__}, which is stored as one value")
    return _find_field(kind, key)


def find_comparison_problem(annotation: Any, sign: str) -> str | None:
    """Returns why values of this type can't be compared in their stored form; None if they can."""
    kind = _strip(annotation)[0]
    if not isinstance(kind, type) or issubclass(kind, int | str):
        return None
    is_ordered = issubclass(kind, dt.date) or not issubclass(kind, _TEXTS)
    if issubclass(kind, _INCOMPARABLE) or not (is_ordered or sign in _EQUALITY):
        return f"compares a {kind.__name__}, which is stored as text"
    return None


def _strip(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the class and its arguments, without Annotated and `| None`; None for a union."""
    annotation = unwrap_annotation(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _strip(args[0])
    if origin in (typing.Union, types.UnionType):
        members = [arg for arg in args if arg is not type(None)]
        return _strip(members[0]) if len(members) == 1 else (None, ())
    return origin or annotation, args


def _find_item_annotation(kind: Any, args: tuple[Any, ...], index: int) -> Any:
    if kind in _LISTS:
        return args[0] if args else None
    if kind is tuple and args:
        is_endless = args[-1] is Ellipsis
        return args[0] if is_endless else _get_item(args, index)
    if _is_named_tuple(kind):
        return read_hints(kind).get(_get_item(kind._fields, index))
    return None


def _get_item(items: tuple[Any, ...], index: int) -> Any:
    return items[index] if -len(items) <= index < len(items) else None


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _find_field(kind: Any, name: str) -> Member:
    if _is_named_tuple(kind):
        fields = {field: index for index, field in enumerate(kind._fields)}
        return _build_member(kind, name, fields)
    if hasattr(kind, PYDANTIC_VALIDATOR) and hasattr(kind, "model_fields"):
        if getattr(kind, "__pydantic_root_model__", False) and name == "root":
            return Member(None, kind.model_fields[name].annotation)
        computed = getattr(kind, "__pydantic_computed_fields__", ())
        return _build_member(
            kind, name, {field: field for field in (*kind.model_fields, *computed)}
        )
    is_struct = issubclass(kind, msgspec.Struct)
    if is_struct and kind.__struct_config__.array_like:
        indexes = {field: index for index, field in enumerate(kind.__struct_fields__)}
        return _build_member(kind, name, indexes)
    if is_struct or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return _build_member(kind, name, {field: key for field, key, _ in list_fields(kind)})
    return Member(name, None)


def _build_member(kind: Any, name: str, keys: collections.abc.Mapping[str, str | int]) -> Member:
    if name in keys:
        return Member(keys[name], read_hints(kind).get(name))
    if not typing.is_typeddict(kind) and hasattr(kind, name):
        raise MemberError(f"is code of {kind.__name__}, and not a stored field")
    return Member(name, None)
