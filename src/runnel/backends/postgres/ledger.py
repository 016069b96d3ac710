"""Where the journal goes, each commit once; and what callers asked for, until it has happened."""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.backends.postgres.database import SQL, Database, Row
from runnel.backends.postgres.projection import (
    FORCED,
    HEADER_COLUMNS,
    Projection,
    columns,
    escaped,
    header_row,
    storable,
    write_batch,
)
from runnel.backends.postgres.quarantine import Writer
from runnel.core.codec import decode_message, encode_message
from runnel.core.commands import CancelExecution, Command, CreateExecution, SendSignal, TakeOver
from runnel.core.ids import DefinitionHash
from runnel.errors import BrokenInvariantError, FencedError, NewerFormatError, UnreadableFormatError
from runnel.ports.journal import Asked, Cursor, JournalEntry, SetAside
from runnel.ports.store import NO_BLOBS, pending_header

COMMAND_COLUMNS = 5
REFUSED = "refused"


class Claimed(msgspec.Struct, frozen=True):
    """How far a partition is archived, and where a later life than that of its Redis went on.

    None when there was none: all that Redis has is what happened.
    """

    sequence: int
    branched_at: int | None


class Recorded(msgspec.Struct, frozen=True):
    """What of some commands was recorded, and the definitions of which nothing was."""

    commands: Sequence[Command]
    refused: frozenset[DefinitionHash]


class PostgresLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def cursor(self, partition: int) -> Cursor:
        row = await self._database.row("get_cursor", partition)
        if row is None:
            raise BrokenInvariantError(f"the archive has no partition {partition}")
        return Cursor(row[0], row[1])

    async def claim(self, partition: int, epoch: int, *, life: int) -> Claimed:
        """Keeps lower epochs from archiving this partition.

        `life` is the epoch by which Redis was last compared with the archive, as Redis has it.
        """
        row = await self._database.row("claim_cursor", partition, epoch)
        if row is None:
            raise _fenced(partition, epoch, await self.cursor(partition))
        branch = await self._database.row("get_branch", partition, life)
        return Claimed(row[0], None if branch is None else branch[0])

    async def begin_life(self, partition: int, epoch: int, sequence: int) -> None:
        """Redis goes on behind `sequence`, whatever else it had of it."""
        await self._database.run("add_life", partition, epoch, sequence)

    async def append(
        self, partition: int, entries: Sequence[JournalEntry], *, after: int, epoch: int
    ) -> None:
        batch = Projection(partition)
        for entry in entries:
            batch.add(entry)
        async with self._moving(partition, epoch, after, entries[-1].sequence) as writer:
            if writer.has_aside:
                await writer.write(entries)
            else:
                await write_batch(writer.connection, batch)

    async def append_piecemeal(
        self, partition: int, entry: JournalEntry, *, after: int, epoch: int
    ) -> Sequence[SetAside]:
        async with self._moving(partition, epoch, after, entry.sequence) as writer:
            return await writer.write_piecemeal(entry)

    @asynccontextmanager
    async def _moving(
        self, partition: int, epoch: int, after: int, upto: int
    ) -> AsyncIterator[Writer]:
        """A transaction that moves the cursor."""
        async with self._database.transaction() as connection:
            moved = await connection.fetchrow(SQL["move_cursor"], partition, epoch, after, upto)
            if moved is None:
                found = await connection.fetchrow(SQL["get_cursor"], partition)
                raise _fenced(partition, epoch, Cursor(*found))
            yield Writer(connection, partition, aside=moved[1])

    async def record(
        self,
        commands: Sequence[tuple[int, Command]],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> Recorded:
        """Commands with their partitions; the executions that they make are listed from then on.

        Their blobs come with them, or not at all. One that makes an execution which is over
        already, because two had the same key, is not recorded: it would run it again. With
        `of_stored`, nor is one that makes an execution of a definition which was deleted.
        """
        values = record_values(commands, of_stored=of_stored)
        rows = await self._record_with(blobs, values)
        made = {id_ for id_, kind in rows if kind == CreateExecution.__name__}
        return Recorded(
            [command for _, command in commands if not _is_left_out(command, made)],
            frozenset(DefinitionHash(hash_) for hash_, kind in rows if kind == REFUSED),
        )

    async def _record_with(
        self, blobs: Mapping[str, bytes], values: Sequence[object]
    ) -> Sequence[Row]:
        """A transaction also for the one statement: by itself, a server that was silent for too
        long would do it later, for a caller who was told that it failed.
        """
        async with self._database.transaction() as connection:
            rows: Sequence[Row] = await connection.fetch(SQL["record"], *values)
            if not any(kind == REFUSED for _, kind in rows):
                for key, data in blobs.items():
                    await connection.execute(SQL["put_blob"], escaped(key), data)
        return rows

    async def unapplied(
        self, partition: int, *, idle_s: float, limit: int, after: int = 0
    ) -> Sequence[Asked]:
        if after == 0:
            await self._database.run("apply_late_commands", partition)
        rows = await self._database.rows("take_unapplied", partition, idle_s, limit, after)
        return [_asked(id_, body) for id_, body in sorted(rows, key=lambda row: row[0])]

    async def mark_unreadable(self, asked: Asked) -> None:
        await self._database.run("mark_unreadable", asked.id, storable(asked.problem))


def _fenced(partition: int, epoch: int, found: Cursor) -> FencedError:
    return FencedError(
        partition,
        held=f"epoch {epoch}",
        current=f"commit {found.sequence} of epoch {found.epoch} in the archive",
    )


def _asked(id_: int, body: bytes) -> Asked:
    """One by one: what can't be read must not keep the others from being sent."""
    try:
        return Asked(id_, decode_message(body))
    except UnreadableFormatError as error:
        return Asked(id_, None, str(error), isinstance(error, NewerFormatError))


def _is_left_out(command: Command, made: Container[str]) -> bool:
    return isinstance(command, CreateExecution) and command.execution_id not in made


def record_values(
    commands: Sequence[tuple[int, Command]], *, of_stored: bool = False
) -> Sequence[object]:
    """What the query `record` takes: all in one statement, because each one more was a round trip
    that everybody who asks for something in the meantime waits for.
    """
    headers = [
        header_row(partition, pending_header(command))
        for partition, command in commands
        if isinstance(command, CreateExecution)
    ]
    asked = [_row(*each) for each in commands]
    made = [command for _, command in commands if isinstance(command, CreateExecution)]
    needed = sorted({each.definition for each in made}) if of_stored else []
    return [*columns(asked, COMMAND_COLUMNS), *columns(headers, HEADER_COLUMNS), needed]


def _row(partition: int, command: Command) -> tuple[object, ...]:
    return (
        partition,
        command.aggregate_id,
        type(command).__name__,
        _key(command),
        encode_message(command),
    )


def _key(command: Command) -> str:
    """Tells the commands of one kind apart by what their event says."""
    if isinstance(command, SendSignal):
        return storable(command.signal_id)
    if isinstance(command, CancelExecution):
        return FORCED if command.is_forced else ""
    if isinstance(command, TakeOver):
        return str(command.part)
    return ""
