"""Commands on their way to a partition: stored, then put into the owner's memory or announced."""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from runnel.backends.feed_entries import pending_entries
from runnel.backends.sqlite.bell import Ringer
from runnel.backends.sqlite.feed import SqliteFeed, write_entries
from runnel.backends.sqlite.partition import OwnedPartitions
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.routes import Routes
from runnel.backends.sqlite.rows import header_row
from runnel.backends.sqlite.writer import Job, Writer
from runnel.backends.stored_definitions import no_longer_stored
from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution
from runnel.core.ids import ExecutionId, root_of
from runnel.core.states import ExecutionState
from runnel.ports.blobs import BlobStore
from runnel.ports.store import NO_BLOBS, pending_header


@dataclass(slots=True)
class Outgoing:
    """The commands of one job, encoded before the transaction begins."""

    commands: list[Command] = field(default_factory=list)
    rows: list[tuple[int, bytes]] = field(default_factory=list)


Rows: TypeAlias = Sequence[tuple[int, bytes | Command]]


@dataclass(slots=True, frozen=True)
class Stored:
    """`rows` is None for a partition that was not owned here when they were written.

    `homes` are the partitions of executions that were to be made and are there already.
    """

    rows: Mapping[int, Rows | None] = field(default_factory=dict)
    made: Sequence[tuple[int, str]] = ()
    homes: Mapping[str, int] = field(default_factory=dict)
    pending: Sequence[str] = ()
    """The executions that nobody has begun; some may have been made before."""


class Messages:
    """`sweep` looks for the stored messages that an owned partition has not seen."""

    def __init__(
        self,
        owned: OwnedPartitions,
        *,
        routes: Routes,
        ringer: Ringer,
        sweep: Callable[[int], None],
    ) -> None:
        self._owned = owned
        self._routes = routes
        self._ringer = ringer
        self._sweep = sweep

    def address(self, commands: Sequence[Command]) -> Outgoing:
        rows = [(self._partition_of(command), encode_message(command)) for command in commands]
        return Outgoing(list(commands), rows)

    def _partition_of(self, command: Command) -> int:
        if isinstance(command, CreateExecution):
            return self._routes.place(root_of(command.execution_id))
        return self._routes.find(command.aggregate_id)

    def write(self, db: sqlite3.Connection, outgoing: Outgoing) -> Stored:
        """The new rows of each partition in order, after those of other processes before them."""
        made = [
            (row[0], command)
            for command, row in zip(outgoing.commands, outgoing.rows, strict=True)
            if isinstance(command, CreateExecution)
        ]
        headers = [header_row(partition, pending_header(command)) for partition, command in made]
        is_new = headers and db.executemany(SQL["add_header"], headers).rowcount == len(headers)
        homes = {} if is_new or not made else _homes(db, [command for _, command in made])
        (last_id,) = db.execute(SQL["last_message"]).fetchone()
        stored: dict[int, list[tuple[int, Command]]] = {}
        messages = []
        for row_id, (command, (partition, body)) in enumerate(
            zip(outgoing.commands, outgoing.rows, strict=True), start=last_id + 1
        ):
            home = homes.get(_root(command), partition) if homes else partition
            messages.append((row_id, home, body))
            stored.setdefault(home, []).append((row_id, command))
        db.executemany(SQL["add_message"], messages)
        return Stored(
            homes=homes,
            rows={
                partition: self._with_unseen(db, partition, rows)
                for partition, rows in stored.items()
            },
            made=[(each, command.execution_id) for each, command in made] if is_new else (),
            pending=[
                command.execution_id
                for _, command in made
                if is_new or _is_pending(db, command.execution_id)
            ],
        )

    def apply(self, stored: Stored) -> None:
        for root, partition in stored.homes.items():
            self._routes.learn(root, partition)
        self._routes.unbegun.update(
            execution_id
            for partition, execution_id in stored.made
            if partition in self._owned.by_number
        )
        for partition, rows in stored.rows.items():
            owned = self._owned.by_number.get(partition)
            if owned is None:
                self._ringer.ring(partition)
            elif rows is None:
                self._sweep(partition)
            else:
                owned.inbox.put_rows(rows)

    def _with_unseen(
        self, db: sqlite3.Connection, partition: int, rows: Sequence[tuple[int, Command]]
    ) -> Rows | None:
        """Ids grow in the order of transactions: what others sent before is visible here."""
        owned = self._owned.by_number.get(partition)
        if owned is None:
            return None
        span = (partition, owned.inbox.last_row, rows[0][0])
        return [*db.execute(SQL["list_messages_before"], span).fetchall(), *rows]


def _root(command: Command) -> str:
    return root_of(ExecutionId(command.aggregate_id))


def _homes(db: sqlite3.Connection, commands: Sequence[CreateExecution]) -> dict[str, int]:
    """Where executions live that are made once more: perhaps in another process's partition."""
    roots = {root_of(command.execution_id) for command in commands}
    found = {root: db.execute(SQL["get_home"], (root,)).fetchone() for root in roots}
    return {root: int(row[0]) for root, row in found.items() if row is not None}


def _is_pending(db: sqlite3.Connection, execution_id: ExecutionId) -> bool:
    row = db.execute(SQL["get_state"], (execution_id,)).fetchone()
    return row is not None and row[0] == ExecutionState.PENDING


class SqliteMailbox:
    """Callers that send in the same moment share one job: 2,000 submits are a few statements."""

    def __init__(
        self, writer: Writer, messages: Messages, blobs: BlobStore, feed: SqliteFeed
    ) -> None:
        self._feed = feed
        self._writer = writer
        self._messages = messages
        self._blobs = blobs
        self._gathering: tuple[Outgoing, Job[Stored]] | None = None
        # The writer may be a thread: joining a batch and closing it must not meet.
        self._lock = threading.Lock()

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> None:
        """One that is cancelled may have sent its commands: then its blobs stay, too."""
        outgoing = self._messages.address(commands)
        join = self._join_alone if of_stored else self._join
        try:
            for key, data in blobs.items():
                await self._blobs.put(key, data)
            if outgoing.rows:
                await self._writer.until_not_busy(lambda: join(outgoing))
        except Exception:
            for key in blobs:
                await self._blobs.delete(key)
            raise

    def _join(self, outgoing: Outgoing) -> Job[Stored]:
        with self._lock:
            if self._gathering is None or self._gathering[1].is_settled:
                batch = Outgoing()
                job = self._writer.enqueue(partial(self._write, batch), self._apply)
                self._gathering = (batch, job)
            batch, job = self._gathering
            batch.commands += outgoing.commands
            batch.rows += outgoing.rows
        return job

    def _join_alone(self, outgoing: Outgoing) -> Job[Stored]:
        """In the same transaction as the others, but refused by itself."""
        return self._writer.enqueue(partial(self._write_stored, outgoing), self._apply)

    def _write_stored(self, outgoing: Outgoing, db: sqlite3.Connection) -> Stored:
        for command in outgoing.commands:
            if isinstance(command, CreateExecution):
                known = db.execute(SQL["get_version"], (command.definition,)).fetchone()
                if known is None:
                    raise no_longer_stored(command)
        return self._write(outgoing, db)

    def _write(self, batch: Outgoing, db: sqlite3.Connection) -> Stored:
        with self._lock:
            if self._gathering is not None and self._gathering[0] is batch:
                self._gathering = None
        stored = self._messages.write(db, batch)
        write_entries(db, pending_entries(stored.pending))
        return stored

    def _apply(self, stored: Stored) -> None:
        self._messages.apply(stored)
        self._feed.arrived.set()
