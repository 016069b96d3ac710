"""An embedded engine in memory: chooses and wires its parts."""

from collections.abc import Mapping

from runnel.authoring.registry import HandlerRegistry
from runnel.backends.memory import MemoryBackend
from runnel.core.workflow import RateLimit
from runnel.runtime.build import CLAIM_AHEAD
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import Engine, World
from runnel.runtime.permitted import local_handlers
from runnel.settings import Settings


def build_memory_engine(
    settings: Settings,
    *,
    handlers: HandlerRegistry | None = None,
    rate_limits: Mapping[str, RateLimit] | None = None,
) -> Engine:
    """Nothing is kept when the process ends: for tests."""
    world = World(RealClock(), RealIds())
    return Engine(
        MemoryBackend(world.clock, world.ids),
        handlers or local_handlers(settings, world.clock),
        world,
        settings,
        rate_limits=rate_limits,
        claim_ahead=CLAIM_AHEAD,
    )
