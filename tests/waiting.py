"""Waiting for something to become true, with a deadline instead of a guess."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.005


async def wait_until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Returns once `condition()` holds; raises TimeoutError, with its name, after the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        if loop.time() > end:
            name = getattr(condition, "__qualname__", condition)
            raise TimeoutError(f"{name} did not become true within {deadline_s:g} s")
        await _pause()


async def _pause(seconds: float = LOOK_EVERY_S) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def wait_for_value(
    look: Callable[[], Awaitable[T | None]], *, every_s: float, deadline_s: float
) -> T:
    """What `look()` gives as soon as that is not None; for looks that ask a server."""
    async with asyncio.timeout(deadline_s):
        while (found := await look()) is None:
            await _pause(every_s)
    return found
