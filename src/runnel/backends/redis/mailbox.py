"""Where callers leave commands for a partition's owner."""

import asyncio
from collections.abc import Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.lines import Arg, Lines
from runnel.backends.redis.values import message_args
from runnel.core.commands import Command, aggregate_of
from runnel.errors import StoreError

# The most that one script does before it lets others have the server.
SENT_AT_ONCE = 500


class RedisMailbox:
    """While one call is under way, the commands of all who come meanwhile gather for the next."""

    def __init__(self, lines: Lines, keys: Keys, layout: Layout) -> None:
        self._lines = lines
        self._keys = [keys.headers, keys.listed, keys.ids, keys.inbox]
        self._layout = layout
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
            for first in range(0, len(commands), SENT_AT_ONCE):
                await self._send(commands[first : first + SENT_AT_ONCE])
        except BaseException as error:
            sent.set_exception(_shared(error))
            sent.exception()  # whoever waits gets it; nobody else may be waiting
            raise
        sent.set_result(None)

    async def _send(self, commands: Sequence[Command]) -> None:
        args: list[Arg] = []
        for command in commands:
            args += message_args(self._layout.route(aggregate_of(command)), command)
        await self._lines.run("send", self._keys, args)


def _shared(error: BaseException) -> Exception:
    """What the others are told: that one caller gave up is no reason to end them too."""
    if isinstance(error, Exception):
        return error
    return StoreError("the call that carried this one's commands was given up: try again")
