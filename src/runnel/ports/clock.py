"""Ports of time, ids, randomness and secrets. The engine has no other source of them."""

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for timestamps that people read, monotonic time for durations."""

    def now(self) -> float:
        """Returns the seconds since the Unix epoch."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Returns a context manager that raises TimeoutError inside its block after `seconds`."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Waits for the event: True if it was set, False after `seconds`.

        None waits without a limit.
        """

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        """Returns the result of `work`.

        After `seconds` it cancels `work` and raises TimeoutError.
        """


class IdGenerator(Protocol):
    """Generates unique ids: two calls never return the same one."""

    def execution_id(self) -> str:
        """Returns an id that sorts by its time of creation."""

    def nonce(self) -> str: ...


class Secrets(Protocol):
    """Secrets by name. Only worker processes know them; they fill them in and never store them."""

    def get(self, name: str) -> str | None:
        """Returns None if this process has no secret of that name."""

    def redact(self, text: str) -> str:
        """Returns the text without the value of any secret, also where a value is quoted or
        encoded.
        """


class NoSecrets:
    """Implements the Secrets port for a process that has none."""

    def get(self, name: str) -> str | None:
        return None

    def redact(self, text: str) -> str:
        return text
