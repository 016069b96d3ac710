"""An embedded engine, durable: chooses and wires its parts."""

from collections.abc import Mapping

from runnel.authoring.registry import HandlerRegistry
from runnel.core.workflow import RateLimit
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import Engine, World
from runnel.runtime.names import engine_name
from runnel.runtime.permitted import local_handlers
from runnel.runtime.stores import open_sqlite
from runnel.settings import Settings

# An embedded engine's tasks are its own worker's: it may claim more than run at once. A claim
# and a report are then shared by more tasks: with SQLite and 4 slots 2,894 diamonds/s instead of
# 2,154 (medians of five, alternating, when a start check was a call of its own).
CLAIM_AHEAD = 60


async def build_engine(
    settings: Settings,
    *,
    handlers: HandlerRegistry | None = None,
    rate_limits: Mapping[str, RateLimit] | None = None,
) -> Engine:
    """An engine on the data dir of the settings; SQLite, durable."""
    world = World(RealClock(), RealIds())
    return Engine(
        await open_sqlite(settings, world.clock, world.ids),
        handlers or local_handlers(settings, world.clock),
        world,
        settings,
        rate_limits=rate_limits,
        name=engine_name(world.ids.nonce()),
        claim_ahead=CLAIM_AHEAD,
    )
