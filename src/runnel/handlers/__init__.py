"""The handlers that come with Runnel.

`sleep`, `wait_for_signal` and `workflow` are not here: the core does them without a worker.
"""

from functools import partial
from typing import TYPE_CHECKING

from runnel.authoring.calls import Call, Mode
from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry, Plan
from runnel.core.validation.handler_settings import RULES
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers import data_processor
from runnel.handlers.permissions import Means
from runnel.handlers.python import Python

if TYPE_CHECKING:
    from runnel.handlers.http import Web
    from runnel.handlers.shell import Shell


# The handlers that reach outside, each imported with its first task.
#
# All together take 45 ms to import, httpx another 110: a run that calls nobody pays for neither.

NAMES = tuple(RULES)


class Outside:
    """What they keep from task to task, connections and a guardian, is theirs together."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._plans: dict[str, Plan] = {}
        self._web: Web | None = None
        self._shell: Shell | None = None

    def plan_of(self, handler: str) -> Plan:
        return partial(self._plan, handler)

    async def close(self) -> None:
        """Those of the running event loop; a later task opens them again."""
        if self._web is not None:
            await self._web.close()
        if self._shell is not None:
            await self._shell.close()

    def _plan(self, handler: str, config: Json) -> Call:
        if handler not in self._plans:
            self._plans[handler] = self._made(handler)
        return self._plans[handler](config)

    def _made(self, handler: str) -> Plan:
        if handler == "shell":
            from runnel.handlers.shell import Shell

            self._shell = Shell(self._means)
            return self._shell.plan
        from runnel.handlers.external_service import ExternalService
        from runnel.handlers.http import Web
        from runnel.handlers.llm import LlmService

        self._web = self._web or Web(self._means)
        if handler == "llm_service":
            return LlmService(self._means, self._web).plan
        return ExternalService(handler, self._web, self._means.clock).plan


# `input` and `output`: where data enters a graph by name, and where it leaves it.


def give_input(config: Json, ctx: Context) -> Json:
    """The execution's input over the config, which so holds the defaults."""
    given = ctx.execution_input
    if isinstance(given, dict):
        return {**config, **given}
    if config:
        raise InputError(
            "handler 'input' has defaults in its config, so the execution's input must be an "
            f"object, got {type(given).__name__}"
        )
    return given


def plan_output(config: Json) -> Call:
    """The resolved config is the result."""
    return Call(function=_same, mode=Mode.LOOP, positional=(config,))


def _same(config: Json) -> Json:
    return config


def builtin_registry(means: Means | None = None) -> HandlerRegistry:
    """A new registry with all of them; users register their own next to these.

    Without `means` they may do whatever the user of this process may.
    """
    given = means or Means()
    reaching = Outside(given)
    registry = HandlerRegistry()
    registry.register("input", give_input, mode=Mode.LOOP)
    registry.register_plan("output", plan_output, source=__name__)
    registry.register_plan("data_processor", data_processor.plan, source=data_processor.__name__)
    registry.register_plan("python", Python(given.functions).plan, source="runnel.handlers.python")
    for name in NAMES:
        registry.register_plan(name, reaching.plan_of(name), source=__name__)
    registry.on_close(reaching.close)
    return registry


__all__ = ["Means", "builtin_registry"]
