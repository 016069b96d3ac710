"""Archives each commit of the Redis journal exactly once, and records the commands of callers."""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.backends.postgres.database import SQL, PostgresDatabase, Row
from runnel.backends.postgres.projection import (
    FORCED_KEY,
    HEADER_COLUMNS,
    Projection,
    build_header_row,
    escape_nul,
    replace_nul,
    transpose_rows,
    write_batch,
)
from runnel.backends.postgres.quarantine import ArchiveWriter
from runnel.core.codec import decode_message, encode_message
from runnel.core.commands import CancelExecution, Command, CreateExecution, SendSignal, TakeOver
from runnel.core.ids import DefinitionHash
from runnel.errors import BrokenInvariantError, FencedError, NewerFormatError, UnreadableFormatError
from runnel.ports.journal import ArchiveCursor, JournalEntry, PendingCommand, QuarantinedAggregate
from runnel.ports.store import NO_BLOBS, make_pending_header

COMMAND_COLUMNS = 5
REFUSED = "refused"


class CursorClaim(msgspec.Struct, frozen=True):
    """The state of the archive cursor of one partition.

    `branched_at` is the sequence after which a later incarnation of Redis continued. None means
    that there was no later incarnation, so every commit in Redis is valid.
    """

    sequence: int
    branched_at: int | None


class RecordedCommands(msgspec.Struct, frozen=True):
    """The recorded commands, and the missing definitions whose executions were refused."""

    commands: Sequence[Command]
    refused: frozenset[DefinitionHash]


class PostgresLedger:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def cursor(self, partition: int) -> ArchiveCursor:
        row = await self._database.row("get_cursor", partition)
        if row is None:
            raise BrokenInvariantError(f"the archive has no partition {partition}")
        return ArchiveCursor(row[0], row[1])

    async def claim(self, partition: int, epoch: int, *, verified_epoch: int) -> CursorClaim:
        """Prevents lower epochs from archiving the partition; returns how far the partition is
        archived.

        `verified_epoch`, which is stored in Redis, is the epoch of the owner that last compared
        Redis with the archive.
        """
        row = await self._database.row("claim_cursor", partition, epoch)
        if row is None:
            raise _build_fenced_error(partition, epoch, await self.cursor(partition))
        branch = await self._database.row("get_branch", partition, verified_epoch)
        return CursorClaim(row[0], None if branch is None else branch[0])

    async def start_incarnation(self, partition: int, epoch: int, sequence: int) -> None:
        """Records that this incarnation of Redis continues after `sequence`."""
        await self._database.run("add_life", partition, epoch, sequence)

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        batch = Projection(partition)
        for entry in entries:
            batch.add(entry)
        async with self._move_cursor(partition, epoch, after, entries[-1].sequence) as writer:
            if writer.has_quarantined:
                await writer.write(entries)
            else:
                await write_batch(writer.connection, batch)

    async def append_with_quarantine(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[QuarantinedAggregate]:
        async with self._move_cursor(partition, epoch, after, entry.sequence) as writer:
            return await writer.write_piecemeal(entry)

    @asynccontextmanager
    async def _move_cursor(
        self, partition: int, epoch: int, after: int, upto: int
    ) -> AsyncIterator[ArchiveWriter]:
        """Opens a transaction that moves the cursor.

        Raises FencedError if the cursor is not at `after` or has a higher epoch.
        """
        async with self._database.transaction() as connection:
            moved = await connection.fetchrow(SQL["move_cursor"], partition, epoch, after, upto)
            if moved is None:
                row = await connection.fetchrow(SQL["get_cursor"], partition)
                raise _build_fenced_error(partition, epoch, ArchiveCursor(*row))
            yield ArchiveWriter(connection, partition, quarantined=moved[1])

    async def record(
        self,
        commands: Sequence[tuple[int, Command]],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> RecordedCommands:
        """Records commands with their partitions, and lists the executions that they create.

        The blobs are stored in the same transaction. Two commands can create the same execution.
        The creation of an execution that has already ended is not recorded, because the execution
        would run again. With `of_stored`, a creation from a deleted definition is not recorded
        either.
        """
        values = build_record_values(commands, of_stored=of_stored)
        rows = await self._record_with_blobs(blobs, values)
        recorded_ids = {id_ for id_, kind in rows if kind == CreateExecution.__name__}
        return RecordedCommands(
            [command for _, command in commands if not _is_unrecorded(command, recorded_ids)],
            frozenset(DefinitionHash(hash_) for hash_, kind in rows if kind == REFUSED),
        )

    async def _record_with_blobs(
        self, blobs: Mapping[str, bytes], values: Sequence[object]
    ) -> Sequence[Row]:
        """Records the commands and blobs in one transaction.

        The transaction is necessary even for the single statement. Without a transaction, a server
        that did not respond in time could run the statement later, although the caller got an
        error.
        """
        async with self._database.transaction() as connection:
            rows: Sequence[Row] = await connection.fetch(SQL["record"], *values)
            if not any(kind == REFUSED for _, kind in rows):
                for key, data in blobs.items():
                    await connection.execute(SQL["put_blob"], escape_nul(key), data)
        return rows

    async def list_unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[PendingCommand]:
        if after == 0:
            await self._database.run("apply_late_commands", partition)
        rows = await self._database.rows("take_unapplied", partition, idle_s, limit, after)
        return [
            _decode_pending_command(id_, body) for id_, body in sorted(rows, key=lambda row: row[0])
        ]

    async def mark_unreadable(self, pending: PendingCommand) -> None:
        await self._database.run("mark_unreadable", pending.id, replace_nul(pending.problem))


def _build_fenced_error(partition: int, epoch: int, cursor: ArchiveCursor) -> FencedError:
    return FencedError(
        partition,
        held=f"epoch {epoch}",
        current=f"commit {cursor.sequence} of epoch {cursor.epoch} in the archive",
    )


def _decode_pending_command(id_: int, body: bytes) -> PendingCommand:
    """Decodes one command.

    Does not raise for an unreadable command, so that the other commands are still sent.
    """
    try:
        return PendingCommand(id_, decode_message(body))
    except UnreadableFormatError as error:
        return PendingCommand(id_, None, str(error), isinstance(error, NewerFormatError))


def _is_unrecorded(command: Command, recorded_ids: Container[str]) -> bool:
    return isinstance(command, CreateExecution) and command.execution_id not in recorded_ids


def build_record_values(
    commands: Sequence[tuple[int, Command]], *, of_stored: bool = False
) -> Sequence[object]:
    """Returns the values of the query `record`.

    The query is one statement for all rows, because concurrent callers wait for the round trip of
    each further statement.
    """
    headers = [
        build_header_row(partition, make_pending_header(command))
        for partition, command in commands
        if isinstance(command, CreateExecution)
    ]
    command_rows = [_build_command_row(*routed) for routed in commands]
    creations = [command for _, command in commands if isinstance(command, CreateExecution)]
    required = sorted({command.definition for command in creations}) if of_stored else []
    return [
        *transpose_rows(command_rows, COMMAND_COLUMNS),
        *transpose_rows(headers, HEADER_COLUMNS),
        required,
    ]


def _build_command_row(partition: int, command: Command) -> tuple[object, ...]:
    return (
        partition,
        command.aggregate_id,
        type(command).__name__,
        _build_command_key(command),
        encode_message(command),
    )


def _build_command_key(command: Command) -> str:
    """Returns the text that matches the command with its event, for example a signal id."""
    if isinstance(command, SendSignal):
        return replace_nul(command.signal_id)
    if isinstance(command, CancelExecution):
        return FORCED_KEY if command.is_forced else ""
    if isinstance(command, TakeOver):
        return str(command.part)
    return ""
