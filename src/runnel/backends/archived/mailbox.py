"""What callers ask for is a row in PostgreSQL before they are told, and a message to its owner."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from runnel.backends.archived.room import Room
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.redis.gathering import Gathering
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.server_time import ServerTime
from runnel.core.commands import Command, CreateExecution, aggregate_of
from runnel.errors import StoreError
from runnel.ports.store import NO_BLOBS

# A creation that reaches Redis later than this is left to the owner, who sends it again: by then
# its execution may have ended and be forgotten. Far below `Archiver.keep_s`.
SENT_WITHIN_S = 20.0


class ArchivedMailbox:
    """Callers that come while a transaction is under way share the next one.

    An error means that nothing was asked, unless the answer to its transaction was lost. Once the
    rows are there, a Redis that can't be reached is no error: the partition's owner sends again
    what has had no effect.
    """

    def __init__(
        self,
        hot: RedisMailbox,
        ledger: PostgresLedger,
        layout: Layout,
        *,
        server_time: ServerTime,
        room: Room,
    ) -> None:
        self._hot = hot
        self._ledger = ledger
        self._layout = layout
        self._server_time = server_time
        self._room = room
        self._gathering = Gathering(self._send_all)

    async def send(
        self, commands: Sequence[Command], *, blobs: Mapping[str, bytes] = NO_BLOBS
    ) -> None:
        """Raises ArchiveBehindError for new executions while too much waits for the archive.

        Those with blobs go by themselves: nobody else has to wait for so much.
        """
        for command in commands:
            if isinstance(command, CreateExecution):
                await self._room.check(self._layout.route(command.execution_id))
        if blobs:
            await self._send_all(commands, blobs)
        else:
            await self._gathering.send(commands)

    async def close(self) -> None:
        await self._gathering.close()

    async def _send_all(
        self, commands: Sequence[Command], blobs: Mapping[str, bytes] = NO_BLOBS
    ) -> None:
        before = await self._server_time.now() + SENT_WITHIN_S
        rows = [(self._partition(each), each) for each in commands]
        recorded = await self._ledger.record(rows, blobs=blobs)
        with suppress(StoreError):
            if not await self._hot.deliver(recorded, blobs=blobs, before=before):
                self._server_time.forget()

    def _partition(self, command: Command) -> int:
        return self._layout.route(aggregate_of(command))
