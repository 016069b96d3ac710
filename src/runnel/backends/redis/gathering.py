"""Callers that come while a call is under way share the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from runnel.core.commands import Command
from runnel.errors import StoreError


class Gathering:
    """While one call is under way, the commands of all who come meanwhile gather for the next."""

    def __init__(self, send: Callable[[Sequence[Command]], Awaitable[None]]) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self._gathered: list[Command] = []
        self._sent: asyncio.Future[None] | None = None

    async def send(self, commands: Sequence[Command]) -> None:
        """One who is cancelled while its commands wait for others' may have sent them."""
        if not commands:
            return
        if self._sent is None:
            self._sent = asyncio.get_running_loop().create_future()
        sent = self._sent
        self._gathered += commands
        async with self._turn:
            if not sent.done():
                await self._send_gathered(sent)
        sent.result()

    async def _send_gathered(self, sent: "asyncio.Future[None]") -> None:
        """For all who share `sent`; an error is everybody's, a cancellation is not."""
        commands, self._gathered, self._sent = self._gathered, [], None
        try:
            await self._send(commands)
        except BaseException as error:
            sent.set_exception(_shared(error))
            sent.exception()  # whoever waits gets it; nobody else may be waiting
            raise
        sent.set_result(None)


def _shared(error: BaseException) -> Exception:
    """What the others are told: that one caller gave up is no reason to end them too."""
    if isinstance(error, Exception):
        return error
    return StoreError("the call that carried this one's commands was given up: try again")
