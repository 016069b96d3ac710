"""Looks at the parts that a process needs, for somebody who does not wait for long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from runnel.errors import StoreError
from runnel.ports.clock import Clock

LOOK_S = 3.0

Look: TypeAlias = Callable[[], Awaitable[str | None]]


class Probes:
    """Of each part one look at most is under way: it may take long to be ended, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[str, asyncio.Task[str | None]] = {}

    async def problem(self, part: str, look: Look) -> str | None:
        """What `look` says is wrong with the part, or why it could not say anything."""
        under_way = self._looks.get(part)
        if under_way is None or under_way.done():
            under_way = asyncio.get_running_loop().create_task(_told(look))
            self._looks[part] = under_way
        told = asyncio.Event()
        under_way.add_done_callback(lambda _look: told.set())
        if not await self._clock.wait(told, LOOK_S):
            return f"no answer within {LOOK_S:g} s"
        return under_way.result()


async def _told(look: Look) -> str | None:
    try:
        return await look()
    except StoreError as error:
        return str(error)
