"""Where callers leave commands for a partition's owner."""

from collections.abc import Mapping, Sequence

from runnel.backends.redis.gathering import Gathering
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.line import Arg
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import message_args
from runnel.backends.stored_definitions import no_longer_stored
from runnel.core.commands import Command, CreateExecution
from runnel.ports.store import NO_BLOBS

# The most that one script does before it lets others have the server.
SENT_AT_ONCE = 500
NEVER = ""


class RedisMailbox:
    def __init__(self, lines: Lines, keys: Keys, layout: Layout) -> None:
        self._lines = lines
        self._keys = [
            *(keys.headers, keys.listed, keys.ids, keys.blobs, keys.inbox, keys.blob),
            *(keys.feed, keys.definition, keys.deleted_versions),
        ]
        self._layout = layout
        self._gathering = Gathering(self._deliver_all)

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> None:
        """Those with blobs by themselves: nobody else has to wait for so much.

        And those that may be refused: nobody else is then.
        """
        if blobs or of_stored:
            await self.deliver(commands, blobs=blobs, of_stored=of_stored)
        else:
            await self._gathering.send(commands)

    async def close(self) -> None:
        await self._gathering.close()

    async def deliver(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        before: float | None = None,
        of_stored: bool = False,
    ) -> bool:
        """False when it reached the server after `before`, on the server's clock: nothing is sent.

        Of more commands than one call takes, the first may have been sent then; and they all are
        judged by the first `of_stored`. Raises NotFoundError as `Mailbox.send` does.
        """
        made = [each for each in commands if of_stored and isinstance(each, CreateExecution)]
        deadline = NEVER if before is None else repr(before)
        for first in range(0, len(commands), SENT_AT_ONCE):
            args: list[Arg] = [deadline]
            args += _definition_args(() if first else made)
            args += _blob_args(NO_BLOBS if first else blobs)
            for command in commands[first : first + SENT_AT_ONCE]:
                args += message_args(self._layout.route(command.aggregate_id), command)
            found: int = await self._lines.run("send", self._keys, args)
            if found < 0:
                raise no_longer_stored(made[-found - 1])
            if not found:
                return False
        return True

    async def _deliver_all(self, commands: Sequence[Command]) -> None:
        await self.deliver(commands)


def _definition_args(made: Sequence[CreateExecution]) -> list[Arg]:
    args: list[Arg] = [len(made)]
    for each in made:
        args += (each.definition, each.workflow)
    return args


def _blob_args(blobs: Mapping[str, bytes]) -> list[Arg]:
    args: list[Arg] = [len(blobs)]
    for key, data in blobs.items():
        args += (key, data)
    return args
