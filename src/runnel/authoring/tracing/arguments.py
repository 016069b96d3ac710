"""The arguments of a call in a workflow, by the names that the called function gives them."""

import inspect
from collections.abc import Mapping
from typing import Any

from runnel.authoring.calls import AnyFunction
from runnel.authoring.tracing.spots import here
from runnel.core.checks.wording import did_you_mean
from runnel.errors import InputError

CONTEXT = "ctx"
_OWNERS = ("self", "cls")


class Parameters:
    """Of a function that is called by names only; `ctx` is the worker's to give."""

    def __init__(self, function: AnyFunction, *, label: str, has_context: bool) -> None:
        whole = inspect.signature(function)
        found = [
            each for name, each in whole.parameters.items() if not (has_context and name == CONTEXT)
        ]
        if "." in getattr(function, "__qualname__", "") and found and found[0].name in _OWNERS:
            raise InputError(
                f"{label}: workers have no object to call a method of; make it a function at the "
                "top level of a module"
            )
        self.label = label
        self.signature = whole.replace(parameters=found, return_annotation=inspect.Signature.empty)
        for each in found:
            if each.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise InputError(
                    f"{label}: arguments are passed by name, which '{each.name}' does not allow; "
                    "remove the / from its parameters"
                )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What was given, by name; raises TraceError for a call that the function would refuse."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            known = self.signature.parameters
            unknown = next((name for name in kwargs if name not in known), None)
            why = str(error)
            if unknown is not None:
                why = f"there is no parameter '{unknown}'{did_you_mean(unknown, known)}"
            raise here().refusal(f"does not fit {self.label}{self.signature}: {why}") from None
        given: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            match self.signature.parameters[name].kind:
                case inspect.Parameter.VAR_KEYWORD:
                    given.update(value)
                case inspect.Parameter.VAR_POSITIONAL:
                    raise here().refusal(
                        f"gives {self.label} more positional arguments than it names: pass them "
                        f"as one list"
                    )
                case _:
                    given[name] = value
        return given
