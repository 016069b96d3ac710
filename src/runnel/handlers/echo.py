"""`input` and `output`: where data enters a graph by name, and where it leaves it."""

from runnel.authoring.calls import Call, Mode
from runnel.authoring.context import Context
from runnel.core.json_types import Json
from runnel.errors import InputError


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
