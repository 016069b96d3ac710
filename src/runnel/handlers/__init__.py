"""The handlers that come with Runnel.

`sleep`, `wait_for_signal` and `workflow` are not here: the core does them without a worker.
"""

from runnel.authoring.calls import Mode
from runnel.authoring.registry import HandlerRegistry
from runnel.handlers import data_processor, echo, python


def builtin_registry() -> HandlerRegistry:
    """A new registry with all of them; users register their own next to these."""
    registry = HandlerRegistry()
    registry.register("input", echo.give_input, mode=Mode.LOOP)
    registry.register_plan("output", echo.plan_output, source="runnel.handlers.echo")
    registry.register_plan("data_processor", data_processor.plan, source=data_processor.__name__)
    registry.register_plan("python", python.plan, source=python.__name__)
    return registry


__all__ = ["builtin_registry"]
