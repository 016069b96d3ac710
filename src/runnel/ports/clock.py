"""Ports for time, ids, randomness and secrets. The engine uses no other source of these."""

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Provides wall time for timestamps that people read, and monotonic time for durations."""

    def now(self) -> float:
        """Returns the seconds since the Unix epoch."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Returns a context manager that raises TimeoutError inside its block after `seconds`."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Waits for the event; returns True if it was set, and False if `seconds` have passed.

        If `seconds` is None, waits without a limit.
        """

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        """Awaits `work` and returns its result.

        Cancels `work` and raises TimeoutError after `seconds`.
        """


class IdGenerator(Protocol):
    """Generates unique ids: two calls never return the same one."""

    def execution_id(self) -> str:
        """Returns an id that sorts by its time of creation."""

    def nonce(self) -> str: ...


class Secrets(Protocol):
    """Provides secrets by name.

    Only workers have secrets. A worker inserts a secret into the config of a task and never stores
    it.
    """

    def get(self, name: str) -> str | None:
        """Returns the value of the secret, or None if this process has no secret of that name."""

    def redact(self, text: str) -> str:
        """Returns the text with the value of every secret masked, also where a value is quoted or
        encoded.
        """


class NoSecrets:
    """Implements the Secrets port for a process without secrets."""

    def get(self, name: str) -> str | None:
        return None

    def redact(self, text: str) -> str:
        return text
