"""The handlers that come with Runnel.

`sleep`, `wait_for_signal` and `workflow` are not here: the core does them without a worker.
"""

from runnel.authoring.calls import Mode
from runnel.authoring.registry import HandlerRegistry
from runnel.handlers import data_processor, echo
from runnel.handlers.external_service import NAMES, ExternalService
from runnel.handlers.http.web import Web
from runnel.handlers.llm_service import NAME as LLM
from runnel.handlers.llm_service import LlmService
from runnel.handlers.means import Means
from runnel.handlers.python import Python
from runnel.handlers.shell.running import NAME as SHELL
from runnel.handlers.shell.running import Shell


def builtin_registry(means: Means | None = None) -> HandlerRegistry:
    """A new registry with all of them; users register their own next to these.

    Without `means` they may do whatever the user of this process may.
    """
    given = means or Means()
    web, shell = Web(given), Shell(given)
    registry = HandlerRegistry()
    registry.register("input", echo.give_input, mode=Mode.LOOP)
    registry.register_plan("output", echo.plan_output, source=echo.__name__)
    registry.register_plan("data_processor", data_processor.plan, source=data_processor.__name__)
    registry.register_plan("python", Python(given.functions).plan, source="runnel.handlers.python")
    for name in NAMES:
        service = ExternalService(name, web, given.clock)
        registry.register_plan(name, service.plan, source="runnel.handlers.external_service")
    registry.register_plan(LLM, LlmService(given, web).plan, source="runnel.handlers.llm_service")
    registry.register_plan(SHELL, shell.plan, source="runnel.handlers.shell")
    registry.on_close(web.close)
    registry.on_close(shell.close)
    return registry


__all__ = ["Means", "builtin_registry"]
