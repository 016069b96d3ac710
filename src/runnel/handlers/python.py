"""The handler `python`: imports a function and calls it.

function  required: `module:name` or `package.module:Class.method`; the working directory is on the
          import path
args      object of keyword arguments; a parameter named `ctx` receives the Context
mode      auto (default: async on the event loop, sync in a thread), loop, thread or process
"""

import inspect
from functools import lru_cache

from runnel.authoring.calls import AUTO, AnyFunction, ContextPlace, FunctionCall, resolve_mode
from runnel.authoring.functions import import_function
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers.environment import check_config
from runnel.handlers.permissions import FunctionPermissions

HANDLER_NAME = "python"


class PythonHandler:
    """Plans calls of functions that the operator allows."""

    def __init__(self, allowed: FunctionPermissions) -> None:
        self._allowed = allowed

    def plan(self, config: Json) -> FunctionCall:
        """Plans the call of one task.

        Raises InputError for an invalid config, and for arguments that do not fit the function.
        Raises NotAllowedError for a function that the operator does not allow. The name is checked
        before the import, which would run code of the module.
        """
        check_config(HANDLER_NAME, config)
        name, args = config["function"], config.get("args", {})
        self._allowed.check_name(name)
        function, signature = _load_function(name)
        self._allowed.check_function(name, function)
        place = (
            ContextPlace.NONE if signature is None else _find_context_place(signature, args, name)
        )
        return FunctionCall(
            function=function,
            mode=resolve_mode(function, config.get("mode", AUTO)),
            named=args,
            place=place,
        )


# Reading a signature takes 10 µs, so signatures are cached.
@lru_cache(maxsize=1024)
def _load_function(name: str) -> tuple[AnyFunction, inspect.Signature | None]:
    function = import_function(name)
    try:
        return function, inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return function, None


def _find_context_place(
    signature: inspect.Signature, args: dict[str, Json], name: str
) -> ContextPlace:
    """Returns how the function receives its context; raises InputError for wrong arguments."""
    wants_context = "ctx" in signature.parameters and "ctx" not in args
    try:
        signature.bind(**args, **({"ctx": None} if wants_context else {}))
    except TypeError as error:
        raise InputError(f"{name}{signature} does not accept these args: {error}") from None
    return ContextPlace.NAMED if wants_context else ContextPlace.NONE
