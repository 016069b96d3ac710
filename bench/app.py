"""The handlers of the workers that are measured: `runnel worker --app bench.app:handlers`."""

import asyncio
from contextlib import suppress

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.json_types import Json
from runnel.handlers import builtin_registry

NAP_S = 0.05


async def noop(_config: Json, _ctx: Context) -> None:
    return None


async def nap(_config: Json, ctx: Context) -> None:
    """Long enough to be at work when its worker is killed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(NAP_S):
            await ctx.wait_cancelled()


handlers: HandlerRegistry = builtin_registry()
handlers.register("noop", noop)
handlers.register("nap", nap)
