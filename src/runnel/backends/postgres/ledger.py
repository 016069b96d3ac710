"""Where the journal goes, each commit once; and what callers asked for, until it has happened."""

from collections.abc import Mapping, Sequence

import msgspec

from runnel.backends.postgres.database import Connection, Database
from runnel.backends.postgres.projection import FORCED, Projection
from runnel.backends.postgres.queries import SQL
from runnel.backends.postgres.rows import columns, escaped, header_row, storable
from runnel.core.codec import decode_message, encode_message
from runnel.core.commands import (
    CancelExecution,
    Command,
    CreateExecution,
    SendSignal,
    TakeOver,
    aggregate_of,
)
from runnel.errors import BrokenInvariantError, FencedError
from runnel.ports.journal import JournalEntry
from runnel.ports.ledger import Cursor
from runnel.ports.store import NO_BLOBS, pending_header

_LOG_COLUMNS = ("partition", "sequence", "ordinal", "aggregate_id", "entry")
_LETTER_COLUMNS = (
    "partition",
    "sequence",
    "ordinal",
    "execution_id",
    "queue",
    "rejected_at",
    "body",
)


class Claimed(msgspec.Struct, frozen=True):
    """How far a partition is archived, and where a later life than that of its Redis went on.

    None when there was none: all that Redis has is what happened.
    """

    sequence: int
    branched_at: int | None


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
            raise await self._fenced(partition, epoch)
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
        last = entries[-1].sequence
        async with self._database.transaction() as connection:
            moved = await connection.fetchval(SQL["move_cursor"], partition, epoch, after, last)
            if moved is not None:
                await _write(connection, batch)
        if moved is None:
            raise await self._fenced(partition, epoch)

    async def record(
        self, commands: Sequence[tuple[int, Command]], *, blobs: Mapping[str, bytes] = NO_BLOBS
    ) -> None:
        """Commands with their partitions; the executions that they make are listed from then on.

        Their blobs come with them, or not at all.
        """
        rows = [
            (
                partition,
                aggregate_of(command),
                type(command).__name__,
                _key(command),
                encode_message(command),
            )
            for partition, command in commands
        ]
        headers = [
            header_row(partition, pending_header(command))
            for partition, command in commands
            if isinstance(command, CreateExecution)
        ]
        async with self._database.transaction() as connection:
            if headers:
                await connection.executemany(SQL["add_header"], headers)
            await connection.executemany(SQL["add_command"], rows)
            for key, data in blobs.items():
                await connection.execute(SQL["put_blob"], escaped(key), data)

    async def unapplied(self, partition: int, *, idle_s: float, limit: int) -> Sequence[Command]:
        await self._database.run("apply_late_commands", partition)
        rows = await self._database.rows("take_unapplied", partition, idle_s, limit)
        return [decode_message(body) for _, body in sorted(rows, key=lambda row: row[0])]

    async def _fenced(self, partition: int, epoch: int) -> FencedError:
        found = await self.cursor(partition)
        return FencedError(
            partition,
            held=f"epoch {epoch}",
            current=f"commit {found.sequence} of epoch {found.epoch} in the archive",
        )


async def _write(connection: Connection, batch: Projection) -> None:
    if batch.audit_log:
        await connection.copy_records_to_table(
            "audit_log", records=batch.audit_log, columns=_LOG_COLUMNS
        )
    if batch.headers:
        headers = list(batch.headers.values())
        await connection.copy_records_to_table("staged_headers", records=headers)
        await connection.execute(SQL["put_headers"])
    if batch.nodes:
        await connection.copy_records_to_table("staged_nodes", records=batch.node_rows())
        await connection.execute(SQL["put_nodes"])
    if batch.closed:
        await connection.execute(SQL["close_limits"], list(batch.closed))
    if batch.limit_logs:
        await connection.copy_records_to_table(
            "limit_log", records=batch.limit_rows(), columns=_LOG_COLUMNS
        )
    if batch.letters:
        await connection.copy_records_to_table(
            "dead_letters", records=batch.letters, columns=_LETTER_COLUMNS
        )
    if batch.applied:
        await connection.execute(SQL["apply_commands"], *columns(list(batch.applied), 3))
    if batch.ended:
        await connection.execute(SQL["apply_all_commands"], list(batch.ended))


def _key(command: Command) -> str:
    """Tells the commands of one kind apart by what their event says."""
    if isinstance(command, SendSignal):
        return storable(command.signal_id)
    if isinstance(command, CancelExecution):
        return FORCED if command.is_forced else ""
    if isinstance(command, TakeOver):
        return str(command.part)
    return ""
