"""How user code is called: which function, where it runs, and with what."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.context import Context
from runnel.core.values import Json
from runnel.errors import InputError

AnyFunction: TypeAlias = Callable[..., Any]


class Mode(StrEnum):
    """Where a function runs: on the event loop, in a thread, or in a process of its own."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


AUTO = "auto"
MODES = (AUTO, *Mode)


class ContextPlace(StrEnum):
    """How a function gets its context: not at all, after the config, or as `ctx=`."""

    NONE = "none"
    LAST = "last"
    NAMED = "named"


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """`knows_secrets` tells that the function uses secrets of the worker that the config does not
    name: its result is searched for them too.
    """

    function: AnyFunction
    mode: Mode
    positional: tuple[Json, ...] = ()
    named: dict[str, Json] = {}
    place: ContextPlace = ContextPlace.NONE
    knows_secrets: bool = False

    def invoke(self, context: Context) -> Any:
        """A coroutine when the function is asynchronous, its result otherwise."""
        if self.place is ContextPlace.LAST:
            return self.function(*self.positional, context, **self.named)
        if self.place is ContextPlace.NAMED:
            return self.function(*self.positional, ctx=context, **self.named)
        return self.function(*self.positional, **self.named)

    def finish(self, context: Context) -> Any:
        """The result, also of an asynchronous function: for a thread without an event loop."""
        result = self.invoke(context)
        if is_async(self.function):
            return asyncio.run(result)
        return result


def resolve_mode(function: AnyFunction, requested: str) -> Mode:
    """`auto` means the loop for async functions and a thread for all others."""
    if requested == AUTO:
        return Mode.LOOP if is_async(function) else Mode.THREAD
    try:
        return Mode(requested)
    except ValueError:
        raise InputError(
            f"expected mode to be one of {', '.join(MODES)}, got '{requested}'"
        ) from None


def is_async(function: AnyFunction) -> bool:
    """Sees through functools.partial and objects with an `async def __call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # the method itself is inspected
    )
