"""What callers ask for is a row in PostgreSQL before they are told, and a message to its owner."""

from collections.abc import Sequence
from contextlib import suppress

from runnel.backends.archived.room import Room
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.redis.gathering import Gathering
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.mailbox import RedisMailbox
from runnel.backends.redis.server_time import ServerTime
from runnel.core.commands import Command, CreateExecution, aggregate_of, blob_of
from runnel.errors import StoreError
from runnel.ports.blobs import BlobStore

# A creation that reaches Redis later than this is left to the owner, who sends it again: by then
# its execution may have ended and be forgotten. Far below `Archiver.keep_s`.
SENT_WITHIN_S = 20.0


class ArchivedMailbox:
    """Callers that come while a transaction is under way share the next one.

    An error means that nothing was asked. Once the rows are there, a Redis that can't be reached
    is no error: the partition's owner sends again what has had no effect.
    """

    def __init__(
        self,
        hot: RedisMailbox,
        ledger: PostgresLedger,
        layout: Layout,
        *,
        hot_blobs: BlobStore,
        cold_blobs: BlobStore,
        server_time: ServerTime,
        room: Room,
    ) -> None:
        self._hot = hot
        self._ledger = ledger
        self._layout = layout
        self._hot_blobs = hot_blobs
        self._cold_blobs = cold_blobs
        self._server_time = server_time
        self._room = room
        self._gathering = Gathering(self._send_all)

    async def send(self, commands: Sequence[Command]) -> None:
        """Raises ArchiveBehindError for new executions while too much waits for the archive."""
        for command in commands:
            if isinstance(command, CreateExecution):
                await self._room.check(self._layout.route(command.execution_id))
            await self._archive_blob(command)
        await self._gathering.send(commands)

    async def close(self) -> None:
        await self._gathering.close()

    async def _send_all(self, commands: Sequence[Command]) -> None:
        before = await self._server_time.now() + SENT_WITHIN_S
        await self._ledger.record([(self._partition(each), each) for each in commands])
        with suppress(StoreError):
            if not await self._hot.deliver(commands, before=before):
                self._server_time.forget()

    async def _archive_blob(self, command: Command) -> None:
        """A large input was written to Redis by the caller: it has to last as long as the row."""
        key = blob_of(command)
        if key is not None:
            await self._cold_blobs.put(key, await self._hot_blobs.get(key))

    def _partition(self, command: Command) -> int:
        return self._layout.route(aggregate_of(command))
