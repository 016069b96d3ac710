"""The handlers of what is measured: `runnel worker --app runnel.benchmarks.handlers:handlers`."""

import asyncio

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.json_types import Json
from runnel.runtime.clock import RealClock

NAP_S = 0.05


async def noop(_config: Json, _ctx: Context) -> None:
    return None


async def nap(_config: Json, _ctx: Context) -> None:
    """Long enough to be at work when its worker is killed."""
    await RealClock().wait(asyncio.Event(), NAP_S)


handlers = HandlerRegistry()
handlers.register("noop", noop)
handlers.register("nap", nap)
