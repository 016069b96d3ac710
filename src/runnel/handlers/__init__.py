"""The built-in handlers that workers run.

The engine runs the handlers `sleep`, `wait_for_signal` and `workflow` itself, without a worker.
"""

from functools import partial
from typing import TYPE_CHECKING

from runnel.authoring.calls import FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.authoring.registry import CallPlanner, HandlerRegistry
from runnel.core.message_text import describe_value
from runnel.core.validation.handler_settings import CONFIG_RULES
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.handlers import data_processor
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.python import PythonHandler

if TYPE_CHECKING:
    from runnel.handlers.http import OutboundHttpClient
    from runnel.handlers.shell import ShellHandler


# The modules of these handlers are imported with their first task. The import takes 45 ms, and that
# of httpx another 110 ms. A run that calls no service needs neither.
IO_HANDLER_NAMES = tuple(CONFIG_RULES)


class IoHandlers:
    """The handlers that do I/O: HTTP, LLM and shell.

    All HTTP handlers share one connection pool, and all shell tasks share one guardian process.
    The pool and the guardian stay open between tasks.
    """

    def __init__(self, environment: HandlerEnvironment) -> None:
        self._environment = environment
        self._planners: dict[str, CallPlanner] = {}
        self._http_client: OutboundHttpClient | None = None
        self._shell: ShellHandler | None = None

    def make_planner(self, handler: str) -> CallPlanner:
        return partial(self._plan_call, handler)

    def is_mocked(self, handler: str, config: Json) -> bool:
        if handler == "shell" or not isinstance(config, dict):
            return False
        return config.get("mock", self._environment.mocks_services) is not False

    async def close(self) -> None:
        """Closes the connections and the guardian of the running event loop.

        A later task opens them again.
        """
        if self._http_client is not None:
            await self._http_client.close()
        if self._shell is not None:
            await self._shell.close()

    def _plan_call(self, handler: str, config: Json) -> FunctionCall:
        if handler not in self._planners:
            self._planners[handler] = self._create_planner(handler)
        return self._planners[handler](config)

    def _create_planner(self, handler: str) -> CallPlanner:
        if handler == "shell":
            from runnel.handlers.shell import ShellHandler

            self._shell = ShellHandler(self._environment)
            return self._shell.plan
        from runnel.handlers.external_service import ExternalService
        from runnel.handlers.http import OutboundHttpClient
        from runnel.handlers.llm import LlmService

        self._http_client = self._http_client or OutboundHttpClient(self._environment)
        if handler == "llm_service":
            return LlmService(self._environment, self._http_client).plan
        return ExternalService(handler, self._http_client, self._environment).plan


# The handlers `input` and `output`.


def provide_input(config: Json, ctx: Context) -> Json:
    """Returns the execution's input; the config provides default values."""
    execution_input = ctx.execution_input
    if isinstance(execution_input, dict):
        return {**config, **execution_input}
    if config:
        raise InputError(
            "handler 'input': the config contains defaults, so the input of the execution must be "
            f"an object, got {describe_value(execution_input)}"
        )
    return execution_input


def plan_output(config: Json) -> FunctionCall:
    """Plans a call that returns the resolved config."""
    return FunctionCall(function=_return_config, mode=Mode.LOOP, positional=(config,))


def _return_config(config: Json) -> Json:
    return config


def create_builtin_registry(environment: HandlerEnvironment | None = None) -> HandlerRegistry:
    """Creates a registry with all built-in handlers; users can add their own handlers.

    Without `environment`, handlers may run any function and any program.
    """
    environment = environment or HandlerEnvironment()
    io_handlers = IoHandlers(environment)
    registry = HandlerRegistry()
    registry.register("input", provide_input, mode=Mode.LOOP)
    registry.register_plan("output", plan_output, source=__name__)
    registry.register_plan("data_processor", data_processor.plan, source=data_processor.__name__)
    registry.register_plan(
        "python", PythonHandler(environment.functions).plan, source="runnel.handlers.python"
    )
    for name in IO_HANDLER_NAMES:
        planner, is_mocked = io_handlers.make_planner(name), partial(io_handlers.is_mocked, name)
        registry.register_plan(name, planner, source=__name__, is_mocked=is_mocked)
    registry.on_close(io_handlers.close)
    return registry


__all__ = ["HandlerEnvironment", "create_builtin_registry"]
