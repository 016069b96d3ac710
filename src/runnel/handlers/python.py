"""The handler `python`: imports a function and calls it.

function  required: `module:name` or `package.module:Class.method`; the working directory is on the
          import path
args      object of keyword arguments, converted by the annotations of the function; a parameter
          named `ctx` receives the Context
mode      auto (default: async on the event loop, sync in a thread), loop, thread or process
"""

from functools import lru_cache

from runnel.authoring.calls import (
    AUTO,
    AnyFunction,
    ContextPlace,
    FunctionCall,
    Mode,
    resolve_mode,
)
from runnel.authoring.functions import import_function
from runnel.authoring.signatures import CONTEXT_PARAMETER, CompiledSignature, compile_signature
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers.environment import check_config
from runnel.handlers.permissions import FunctionPermissions

HANDLER_NAME = "python"


CALL_SHAPES_MAX = 1024


class PythonHandler:
    """Plans calls of functions that the operator allows."""

    def __init__(self, allowed: FunctionPermissions) -> None:
        self._allowed = allowed
        # Calls by the keys of their config, their function, their mode and the names of their
        # arguments. All checks depend on these only, and take 8 µs.
        self._known_calls: dict[object, FunctionCall] = {}

    def plan(self, config: Json) -> FunctionCall:
        """Plans the call of one task.

        Raises InputError for an invalid config, and for arguments that do not fit the function.
        Raises NotAllowedError for a function that the operator does not allow. The name is checked
        before the import, which would run code of the module.
        """
        args = config.get("args", {})
        shape = _read_shape(config, args)
        known = None if shape is None else self._known_calls.get(shape)
        if known is None:
            known = self._plan(config, args)
            if shape is not None:
                if len(self._known_calls) >= CALL_SHAPES_MAX:
                    self._known_calls.clear()
                self._known_calls[shape] = known
        return FunctionCall(
            function=known.function,
            mode=known.mode,
            named=args,
            place=known.place,
            signature=known.signature,
        )

    def _plan(self, config: Json, args: Json) -> FunctionCall:
        """Plans a call without its arguments."""
        check_config(HANDLER_NAME, config)
        name = config["function"]
        self._allowed.check_name(name)
        function, signature, auto_mode = _load_function(name)
        mode = config.get("mode", AUTO)
        self._allowed.check_function(name, function)
        place = (
            ContextPlace.NONE if signature is None else _find_context_place(signature, args, name)
        )
        return FunctionCall(
            function=function,
            mode=auto_mode if mode == AUTO else resolve_mode(function, mode),
            place=place,
            signature=signature if signature is not None and signature.is_typed else None,
        )


def _read_shape(config: Json, args: Json) -> object | None:
    """Returns what the plan of a call depends on; None if the config may be invalid."""
    function, mode = config.get("function"), config.get("mode", AUTO)
    if type(args) is not dict or type(function) is not str or type(mode) is not str:
        return None
    return tuple(config), function, mode, tuple(args)


# Importing a function by its name takes 5 µs, so functions are cached with their signatures.
@lru_cache(maxsize=1024)
def _load_function(name: str) -> tuple[AnyFunction, CompiledSignature | None, Mode]:
    function = import_function(name)
    return function, compile_signature(function), resolve_mode(function, AUTO)


def _find_context_place(
    signature: CompiledSignature, args: dict[str, Json], name: str
) -> ContextPlace:
    """Returns how the function receives its context; raises InputError for wrong arguments."""
    wants_context = signature.wants_context and CONTEXT_PARAMETER not in args
    if not signature.accepts(args.keys()):
        try:
            signature.signature.bind(**args, **({CONTEXT_PARAMETER: None} if wants_context else {}))
        except TypeError as error:
            raise InputError(
                f"{name}{signature.signature} does not accept these args: {error}"
            ) from None
    return ContextPlace.NAMED if wants_context else ContextPlace.NONE
