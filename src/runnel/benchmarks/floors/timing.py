"""The same ways to run executions for both floors: all at once, or one at a time."""

import asyncio
from typing import Protocol

from runnel.ports.clock import Clock


class Floor(Protocol):
    async def execute(self) -> None:
        """Submits one execution and waits for its end."""


async def at_once(floor: Floor, count: int, clock: Clock) -> float:
    """Executions per second."""
    started = clock.monotonic()
    await asyncio.gather(*[floor.execute() for _ in range(count)])
    return count / (clock.monotonic() - started)


async def in_turn(floor: Floor, count: int, clock: Clock) -> float:
    """Executions per second."""
    started = clock.monotonic()
    for _ in range(count):
        await floor.execute()
    return count / (clock.monotonic() - started)
