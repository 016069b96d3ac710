"""Waiting for something to become true, with a deadline instead of a guess."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

LOOK_EVERY_S = 0.005


async def eventually(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Returns once `condition()` holds; raises TimeoutError, with its name, after the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        if loop.time() > end:
            name = getattr(condition, "__qualname__", condition)
            raise TimeoutError(f"{name} did not become true within {deadline_s:g} s")
        await _a_moment()


async def _a_moment() -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_EVERY_S):
            await asyncio.Event().wait()
