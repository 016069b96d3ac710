"""Where callers leave commands for a partition's owner."""

from collections.abc import Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.lines import Arg, Lines
from runnel.backends.redis.values import message_args
from runnel.core.commands import Command, aggregate_of

# The most that one script does before it lets others have the server.
SENT_AT_ONCE = 500


class RedisMailbox:
    def __init__(self, lines: Lines, keys: Keys, layout: Layout) -> None:
        self._lines = lines
        self._keys = [keys.headers, keys.listed, keys.ids, keys.inbox]
        self._layout = layout

    async def send(self, commands: Sequence[Command]) -> None:
        for first in range(0, len(commands), SENT_AT_ONCE):
            args: list[Arg] = []
            for command in commands[first : first + SENT_AT_ONCE]:
                args += message_args(self._layout.route(aggregate_of(command)), command)
            await self._lines.run("send", self._keys, args)
