"""A call of user code: which function, where it runs, and its arguments."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.context import Context
from runnel.authoring.signatures import CompiledSignature
from runnel.core.values import Json
from runnel.errors import InputError

AnyFunction: TypeAlias = Callable[..., Any]


class Mode(StrEnum):
    """Where a function runs: on the worker's event loop, in a thread, or in a child process."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


AUTO = "auto"
MODES = (AUTO, *Mode)


class ContextPlace(StrEnum):
    """How a function receives its Context: not at all, as last argument, or as `ctx=`."""

    NONE = "none"
    LAST = "last"
    NAMED = "named"


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function with its arguments and the mode in which the worker calls it.

    `knows_secrets` is True if the function uses secrets of the worker that the config does not
    name. In the result of such a call, the worker masks every secret that the worker has.
    `signature` converts arguments and result by the function's annotations; None leaves them as
    they are.
    """

    function: AnyFunction
    mode: Mode
    positional: tuple[Json, ...] = ()
    named: dict[str, Json] = {}
    place: ContextPlace = ContextPlace.NONE
    knows_secrets: bool = False
    signature: CompiledSignature | None = None

    def invoke(self, context: Context) -> Any:
        """Calls the function; returns its result, or a coroutine if the function is async.

        Raises InvalidInputError if an argument does not fit its annotation.
        """
        named = self.named
        if self.signature is not None:
            named = self.signature.decode_arguments(named)
        if self.place is ContextPlace.LAST:
            return self.function(*self.positional, context, **named)
        if self.place is ContextPlace.NAMED:
            return self.function(*self.positional, ctx=context, **named)
        return self.function(*self.positional, **named)

    def finish(self, context: Context) -> Any:
        """Calls the function and returns its result; runs an async function to its end.

        Only for threads without an event loop.
        """
        result = self.invoke(context)
        if is_async(self.function):
            return asyncio.run(result)
        return result


def resolve_mode(function: AnyFunction, requested: str) -> Mode:
    """Returns the requested mode; `auto` is LOOP for async functions, THREAD for other functions.

    Raises InputError if `requested` is not a mode.
    """
    if requested == AUTO:
        return Mode.LOOP if is_async(function) else Mode.THREAD
    try:
        return Mode(requested)
    except ValueError:
        raise InputError(f"mode: expected one of {', '.join(MODES)}, got '{requested}'") from None


def is_async(function: AnyFunction) -> bool:
    """Returns True for async functions, also in functools.partial, and for an async `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # the method itself is inspected
    )
