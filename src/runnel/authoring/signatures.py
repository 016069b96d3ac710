"""The compiled signature of a function: which arguments it takes, and the types of its values."""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from runnel.authoring.single_types import MismatchError, ValueType
from runnel.authoring.type_hints import read_hints
from runnel.authoring.value_types import compile_type
from runnel.core.values import Json
from runnel.errors import InvalidInputError

CONTEXT_PARAMETER = "ctx"
_AWAITABLES = (collections.abc.Coroutine, collections.abc.Awaitable)


class CompiledSignature:
    """The parameters of a function that is called with keyword arguments, and their types.

    `wants_context` is True if the function has a parameter `ctx`. `result` is the type of the
    result; None if the result is a plain JSON value. `is_typed` is False if no value of the
    function needs a conversion.
    """

    __slots__ = (
        "_accepted",
        "_accepts_any",
        "_name",
        "_other_type",
        "_parameters",
        "_required",
        "is_typed",
        "result",
        "signature",
        "wants_context",
    )

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        parameters = signature.parameters
        kinds = {name: parameter.kind for name, parameter in parameters.items()}
        self._name = getattr(function, "__qualname__", None) or repr(function)
        self.signature = signature
        self.wants_context = CONTEXT_PARAMETER in parameters
        self._accepts_any = inspect.Parameter.VAR_KEYWORD in kinds.values()
        self._accepted = frozenset(name for name, kind in kinds.items() if kind in _BY_NAME)
        self._required = frozenset(
            name
            for name, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC
        )
        hints = read_hints(function)
        self._parameters = {
            name: kind
            for name in self._accepted
            if name != CONTEXT_PARAMETER
            and (kind := _compile_parameter(hints.get(name))) is not None
        }
        other = next((name for name, kind in kinds.items() if kind is _VAR_KEYWORD), None)
        self._other_type = None if other is None else _compile_parameter(hints.get(other))
        self.result = compile_result(hints.get("return"))
        self.is_typed = bool(self._parameters or self._other_type or self.result)

    def accepts(self, names: collections.abc.Set[str]) -> bool:
        """Returns True if the function accepts exactly these arguments, beside its context."""
        required = self._required
        if self.wants_context:
            required = required - _CONTEXT
        return required <= names and (self._accepts_any or names <= self._accepted)

    def decode_arguments(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        """Returns the arguments in their types; raises InvalidInputError for a wrong value."""
        return {name: self._decode(name, value) for name, value in arguments.items()}

    def _decode(self, name: str, value: Json) -> Any:
        kind = self._parameters.get(name)
        if kind is None:
            if name in self._accepted or self._other_type is None:
                return value
            kind = self._other_type
        try:
            return kind.decode(value, name)
        except MismatchError as error:
            raise InvalidInputError(
                f"an argument does not fit {self._name}: {error}", problems=[str(error)]
            ) from None


_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, _VAR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CONTEXT = frozenset({CONTEXT_PARAMETER})


def compile_signature(function: Callable[..., Any]) -> CompiledSignature | None:
    """Returns the signature of a function; None for a function in C that has no signature."""
    try:
        return _compile_signature(function)
    except TypeError:  # an object that can't be hashed
        return _compile_signature.__wrapped__(function)


@lru_cache(maxsize=4096)
def _compile_signature(function: Callable[..., Any]) -> CompiledSignature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return CompiledSignature(function, signature)


def _compile_parameter(hint: Any) -> ValueType | None:
    """Returns the type of a parameter; None for a plain JSON value.

    The type also accepts None, and a list of the type accepts items that are None. A task that runs
    after a failure gets None for a failed parent, and a map has None for an item that was skipped.
    """
    if hint is None or compile_type(hint).is_plain:
        return None
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        hint = list[item | None]  # type: ignore[valid-type]  # a type at run time
    return compile_type(_make_optional(hint))


def _make_optional(hint: Any) -> Any:
    """Returns the hint with None as its last member.

    `typing.Union` caches its results by equality, and `A | B` equals `B | A`. So the members of a
    union are passed one by one.
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[(*typing.get_args(hint), None)]
    try:
        return hint | None
    except TypeError:  # a hint may be a string
        return typing.Union[hint, None]  # noqa: UP007


def read_result_annotation(function: Callable[..., Any]) -> Any:
    """Returns the annotation of a function's result; None if it has none."""
    return _unwrap_awaitable(read_hints(function).get("return"))


def _unwrap_awaitable(hint: Any) -> Any:
    is_awaitable = typing.get_origin(hint) in _AWAITABLES
    return typing.get_args(hint)[-1] if is_awaitable else hint


def compile_result(hint: Any) -> ValueType | None:
    """Returns the type of a result; None for a plain JSON value."""
    kind = compile_type(_unwrap_awaitable(hint))
    return None if kind.is_plain else kind
