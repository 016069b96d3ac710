"""The handlers that come with Runnel.

`sleep`, `wait_for_signal` and `workflow` are not here: the core does them without a worker.
"""

from runnel.authoring.calls import Mode
from runnel.authoring.registry import HandlerRegistry
from runnel.handlers import data_processor, echo, outside
from runnel.handlers.means import Means
from runnel.handlers.python import Python


def builtin_registry(means: Means | None = None) -> HandlerRegistry:
    """A new registry with all of them; users register their own next to these.

    Without `means` they may do whatever the user of this process may.
    """
    given = means or Means()
    reaching = outside.Outside(given)
    registry = HandlerRegistry()
    registry.register("input", echo.give_input, mode=Mode.LOOP)
    registry.register_plan("output", echo.plan_output, source=echo.__name__)
    registry.register_plan("data_processor", data_processor.plan, source=data_processor.__name__)
    registry.register_plan("python", Python(given.functions).plan, source="runnel.handlers.python")
    for name in outside.NAMES:
        registry.register_plan(name, reaching.plan_of(name), source=outside.__name__)
    registry.on_close(reaching.close)
    return registry


__all__ = ["Means", "builtin_registry"]
