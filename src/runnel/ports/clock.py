"""Ports of time, ids, randomness and secrets: the engine gets them from here only."""

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for what people see, monotonic time for how long something takes."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Raises TimeoutError inside the block once the time is up."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Waits until the event is set (True) or the time is up (False); None waits for ever."""

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        """The result of `work`; raises TimeoutError, and cancels it, once the time is up."""


class IdGenerator(Protocol):
    """Fresh names; two calls never return the same one."""

    def execution_id(self) -> str:
        """Sorts by the time at which it was made."""

    def nonce(self) -> str: ...


class Secrets(Protocol):
    """Secrets by name: known to the processes that run workers, filled in there, never stored."""

    def get(self, name: str) -> str | None:
        """None when this process has no secret of that name."""

    def redact(self, text: str) -> str:
        """The text without the value of any secret, also where it is quoted or encoded."""


class NoSecrets:
    def get(self, name: str) -> str | None:
        return None

    def redact(self, text: str) -> str:
        return text
