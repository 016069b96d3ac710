"""Waits for a condition with a deadline instead of a fixed sleep."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

POLL_INTERVAL_S = 0.005


async def wait_until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Returns once `condition()` holds. Raises TimeoutError with its name after the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        if loop.time() > end:
            name = getattr(condition, "__qualname__", condition)
            raise TimeoutError(f"{name} did not become true within {deadline_s:g} s")
        await _pause()


async def _pause(seconds: float = POLL_INTERVAL_S) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def wait_for_value(
    read: Callable[[], Awaitable[T | None]], *, every_s: float, deadline_s: float
) -> T:
    """Returns the first result of `read()` that is not None. For calls that query a server."""
    async with asyncio.timeout(deadline_s):
        while (value := await read()) is None:
            await _pause(every_s)
    return value
