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
        function, signature, auto_mode = _load_function(name)
        mode = config.get("mode", AUTO)
        self._allowed.check_function(name, function)
        place = (
            ContextPlace.NONE if signature is None else _find_context_place(signature, args, name)
        )
        return FunctionCall(
            function=function,
            mode=auto_mode if mode == AUTO else resolve_mode(function, mode),
            named=args,
            place=place,
            signature=signature if signature is not None and signature.is_typed else None,
        )


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
