"""The handlers of the workers that are measured: `runnel worker --app bench.app:handlers`."""

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.json_types import Json
from runnel.handlers import builtin_registry


async def noop(_config: Json, _ctx: Context) -> None:
    return None


async def rest(_config: Json, ctx: Context) -> None:
    """Until it is stopped: for what is killed in the middle."""
    await ctx.wait_cancelled()


handlers: HandlerRegistry = builtin_registry()
handlers.register("noop", noop)
handlers.register("rest", rest)
