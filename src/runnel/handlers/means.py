"""What handlers are given to work with: what the operator allows, where models are, time."""

from collections.abc import Iterable

import msgspec

from runnel.core.handler_settings import config_problems
from runnel.core.json_types import Json
from runnel.errors import InputError
from runnel.handlers.addresses import Addresses
from runnel.handlers.loop_time import LoopTime, Waits
from runnel.handlers.permissions import Functions, Programs

LLM_URL = "https://api.openai.com/v1"


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """By default what a user on the own machine may do: any function, any program.

    `llm_api_key` is sent to `llm_url` and to nobody else.
    """

    functions: Functions = Functions()
    programs: Programs = Programs()
    addresses: Addresses = Addresses()
    llm_url: str = LLM_URL
    llm_api_key: str | None = None
    clock: Waits = msgspec.field(default_factory=LoopTime)

    def with_app(self, module: str, tasks: Iterable[str]) -> "Means":
        """The functions that the module defines are allowed too, and so are these tasks."""
        functions = self.functions.with_module(module).with_names(tasks)
        return msgspec.structs.replace(self, functions=functions)

    def with_functions(self, patterns: Iterable[str]) -> "Means":
        return msgspec.structs.replace(self, functions=self.functions.with_names(patterns))


def check_config(handler: str, config: Json) -> None:
    """Raises InputError with every problem of a config whose templates are filled in."""
    problems = list(config_problems(handler, config))
    if problems:
        raise InputError(f"handler '{handler}': " + "; ".join(problems))
