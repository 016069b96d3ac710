"""Callers that come while a call is under way share the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from runnel.core.commands import Command

T = TypeVar("T")


class Gathering(Generic[T]):
    """While one call is under way, the commands of all who come meanwhile gather for the next.

    A call is nobody's: it goes on when one of those who share it gives up, and its error is that
    of all who still wait.
    """

    def __init__(self, send: Callable[[Sequence[Command]], Awaitable[T]]) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self._gathered: list[Command] = []
        self._next: asyncio.Task[T] | None = None
        self._calls: set[asyncio.Task[T]] = set()

    async def send(self, commands: Sequence[Command]) -> T | None:
        """What the call has given, to all who share it; None when there was nothing to send.

        One who is cancelled while its commands are under way may have sent them.
        """
        if not commands:
            return None
        self._gathered += commands
        if self._next is None:
            self._next = asyncio.create_task(self._send_gathered())
            self._calls.add(self._next)
            self._next.add_done_callback(self._settle)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Calls that are under way are given up: nobody should wait for one any more."""
        calls = [*self._calls]
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    async def _send_gathered(self) -> T:
        async with self._turn:
            commands, self._gathered, self._next = self._gathered, [], None
            return await self._send(commands)

    def _settle(self, call: "asyncio.Task[T]") -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # perhaps nobody waits for it: no news for the log of asyncio
