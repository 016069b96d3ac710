"""The environment of handlers: permissions, LLM address and clock. Also checks handler configs."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from runnel.core.templates.filters import to_text
from runnel.core.validation.handler_settings import find_config_problems
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers.permissions import (
    AddressPermissions,
    FunctionPermissions,
    ProgramPermissions,
)

LLM_URL = "https://api.openai.com/v1"


class HandlerClock(Protocol):
    """The methods of a Clock that handlers use."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]: ...


class EventLoopClock:
    """The default clock of handlers: real time and asyncio."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)


class HandlerEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions, the LLM service and the clock of handlers.

    The defaults are for a user's own machine: they allow any function, any program and all public
    addresses. `llm_api_key` is sent to `llm_url` only. With `mocks_services`, a service whose
    config has no `mock` is mocked.
    """

    functions: FunctionPermissions = FunctionPermissions()
    programs: ProgramPermissions = ProgramPermissions()
    addresses: AddressPermissions = AddressPermissions()
    llm_url: str = LLM_URL
    llm_api_key: str | None = None
    mocks_services: bool = False
    clock: HandlerClock = msgspec.field(default_factory=EventLoopClock)

    def with_apps(self, modules: Iterable[str], tasks: Iterable[str]) -> "HandlerEnvironment":
        """Returns a copy that also allows the functions of the modules, and the given tasks."""
        functions = self.functions.with_names(f"{module}:*" for module in modules)
        functions = functions.with_names(tasks)
        return msgspec.structs.replace(self, functions=functions)

    def with_folder(self, folder: Path) -> "HandlerEnvironment":
        """Returns a copy that also allows the functions of the Python files in a folder."""
        functions = msgspec.structs.replace(self.functions, folder=folder)
        return msgspec.structs.replace(self, functions=functions)


def convert_texts(config: Json, names: tuple[str, ...]) -> Json:
    """Returns the config with numbers, booleans, lists and objects in the named settings as text.

    A setting that is one `{{ }}` keeps the type of its value. These settings are texts in any case,
    so they get the text that the value has inside a longer text.
    """
    texts = {
        name: to_text(config[name])
        for name in names
        if isinstance(config.get(name), bool | int | float | list | dict)
    }
    return {**config, **texts} if texts else config


def check_config(handler: str, config: Json) -> None:
    """Raises InputError with every problem of a config whose templates are filled in."""
    problems = list(find_config_problems(handler, config))
    if problems:
        raise InputError(f"handler '{handler}': " + "; ".join(problems))
