"""Records each command in PostgreSQL, then sends it to the owner of its partition through Redis."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from runnel.backends.mailboxes import build_definition_deleted_error
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.redis.keys import RedisLayout
from runnel.backends.redis.mailbox import CommandBatcher, RedisMailbox, ServerClock
from runnel.core.commands import Command, CreateExecution
from runnel.core.ids import DefinitionHash
from runnel.errors import ArchiveBehindError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.journal import Journal
from runnel.ports.store import NO_BLOBS

# -- admission control: refuses new executions while too many commits are not archived ----------

# At this fill ratio of the journal, new executions are refused. Running executions continue.
JOURNAL_FILL_RATIO_MAX = 0.8
JOURNAL_POLL_INTERVAL_S = 1.0


class AdmissionControl:
    def __init__(self, journal: Journal, clock: Clock, *, journal_entries_max: int) -> None:
        self._journal = journal
        self._clock = clock
        self._entries_max = JOURNAL_FILL_RATIO_MAX * journal_entries_max
        self._lengths: dict[int, tuple[float, int]] = {}
        self._lock = asyncio.Lock()

    async def check(self, partition: int) -> None:
        """Raises ArchiveBehindError if the journal is too long.

        The measured length is at most one second old.
        """
        if self._is_outdated(partition):
            # One query serves all concurrent callers: without the lock, 2,000 submits sent 2,000
            # queries.
            async with self._lock:
                if self._is_outdated(partition):
                    length = await self._journal.length(partition)
                    self._lengths[partition] = (self._clock.monotonic(), length)
        entries = self._lengths[partition][1]
        if entries >= self._entries_max:
            raise ArchiveBehindError(partition, entries)

    def _is_outdated(self, partition: int) -> bool:
        length = self._lengths.get(partition)
        return length is None or self._clock.monotonic() - length[0] > JOURNAL_POLL_INTERVAL_S


# Redis refuses a creation that arrives later than this, because its execution may have ended and
# been removed from Redis by then. The owner of the partition sends the creation again. This time is
# far below `Archiver.keep_s`.
SEND_DEADLINE_S = 20.0


class RedisPostgresMailbox:
    """Implements the Mailbox port.

    Callers that arrive during a transaction share the next transaction. An error means that no
    command was recorded, unless the reply to the transaction was lost. Once the commands are
    recorded, an unreachable Redis is not an error. The owner of the partition later sends the
    recorded commands that have had no effect.
    """

    def __init__(
        self,
        hot: RedisMailbox,
        ledger: PostgresLedger,
        layout: RedisLayout,
        *,
        server_clock: ServerClock,
        admission: AdmissionControl,
    ) -> None:
        self._hot = hot
        self._ledger = ledger
        self._layout = layout
        self._server_clock = server_clock
        self._admission = admission
        self._batcher = CommandBatcher(self._send_all)
        self._checked_batcher = CommandBatcher(partial(self._send_all, of_stored=True))

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Records and sends the commands.

        Raises ArchiveBehindError for new executions while too many commits wait for the archive.
        Commands with blobs use their own transaction, so that other callers do not wait for large
        values. The SQL statement that records the commands also checks that their definitions are
        stored.
        """
        for command in commands:
            if isinstance(command, CreateExecution):
                await self._admission.check(self._layout.route(command.execution_id))
        if blobs:
            refused = await self._send_all(commands, blobs, of_stored=requires_definition)
        else:
            batcher = self._checked_batcher if requires_definition else self._batcher
            refused = await batcher.send(commands) or frozenset()
        for command in commands:
            if isinstance(command, CreateExecution) and command.definition in refused:
                raise build_definition_deleted_error(command)

    async def close(self) -> None:
        await self._batcher.close()
        await self._checked_batcher.close()

    async def _send_all(
        self,
        commands: Sequence[Command],
        blobs: Mapping[str, bytes] = NO_BLOBS,
        *,
        of_stored: bool = False,
    ) -> Collection[DefinitionHash]:
        """Records and sends the commands; returns the definitions that are not stored."""
        deadline_at = await self._server_clock.now() + SEND_DEADLINE_S
        rows = [(self._route(command), command) for command in commands]
        recorded = await self._ledger.record(rows, blobs=blobs, of_stored=of_stored)
        with suppress(StoreError):
            recorded_blobs = NO_BLOBS if recorded.refused else blobs
            if not await self._hot.deliver(
                recorded.commands, blobs=recorded_blobs, deadline_at=deadline_at
            ):
                self._server_clock.reset()
        return recorded.refused

    def _route(self, command: Command) -> int:
        return self._layout.route(command.aggregate_id)
