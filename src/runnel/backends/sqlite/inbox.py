"""Delivery of commands to partitions.

Commands are stored first. If this process owns the partition, the commands are then put into its
inbox. If another process owns the partition, that process is woken through its socket.
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from runnel.backends.feed_log import build_pending_entries
from runnel.backends.mailboxes import build_definition_deleted_error
from runnel.backends.row_codec import build_header_row
from runnel.backends.sqlite.database import SQL
from runnel.backends.sqlite.feed import SqliteFeed, write_feed_entries
from runnel.backends.sqlite.partition import SqliteProcessState
from runnel.backends.sqlite.wakeup_socket import WakeupSender
from runnel.backends.sqlite.writer import SqliteWriter, WriteJob
from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.ports.records import BlobStore
from runnel.ports.store import NO_BLOBS, make_pending_header


@dataclass(slots=True)
class OutgoingCommands:
    """The commands of one write job, encoded before the transaction of the job begins."""

    commands: list[Command] = field(default_factory=list)
    rows: list[tuple[int, bytes]] = field(default_factory=list)


MessageRows: TypeAlias = Sequence[tuple[int, bytes | Command]]


@dataclass(slots=True, frozen=True)
class StoredMessages:
    """The result of storing a batch of commands.

    `rows` has None for a partition that this process did not own when the commands were written.
    `created` lists new executions with their partitions. `known_partitions` maps the roots of
    executions that existed already to their partitions.
    """

    rows: Mapping[int, MessageRows | None] = field(default_factory=dict)
    created: Sequence[tuple[int, str]] = ()
    known_partitions: Mapping[str, int] = field(default_factory=dict)
    pending: Sequence[str] = ()
    """Executions of the batch that no owner has started yet; some of them may have existed before.
    """


class MessageDelivery:
    """Stores commands and puts them into the inboxes of owned partitions.

    `read_new_messages` reads the stored messages that are not yet in the inbox of an owned
    partition.
    """

    def __init__(
        self,
        state: SqliteProcessState,
        *,
        wakeup_sender: WakeupSender,
        read_new_messages: Callable[[int], None],
    ) -> None:
        self._state = state
        self._wakeup_sender = wakeup_sender
        self._read_new_messages = read_new_messages

    def encode_commands(self, commands: Sequence[Command]) -> OutgoingCommands:
        rows = [(self._route(command), encode_message(command)) for command in commands]
        return OutgoingCommands(list(commands), rows)

    def _route(self, command: Command) -> int:
        if isinstance(command, CreateExecution):
            return self._state.routes.route_new(get_root_id(command.execution_id))
        return self._state.routes.find(command.aggregate_id)

    def write(self, db: sqlite3.Connection, outgoing: OutgoingCommands) -> StoredMessages:
        """Stores the commands and returns the stored rows.

        The result has the new rows of each partition in order. The new rows follow earlier rows of
        other processes that are not yet in the inbox of the partition.
        """
        creations = [
            (row[0], command)
            for command, row in zip(outgoing.commands, outgoing.rows, strict=True)
            if isinstance(command, CreateExecution)
        ]
        headers = [
            build_header_row(partition, make_pending_header(command))
            for partition, command in creations
        ]
        is_new = headers and db.executemany(SQL["add_header"], headers).rowcount == len(headers)
        partitions = {} if is_new else _find_partitions(db, [command for _, command in creations])
        (last_id,) = db.execute(SQL["last_message"]).fetchone()
        stored: dict[int, list[tuple[int, Command]]] = {}
        messages = []
        for row_id, (command, (partition, body)) in enumerate(
            zip(outgoing.commands, outgoing.rows, strict=True), start=last_id + 1
        ):
            target = partitions.get(_get_root(command), partition) if partitions else partition
            messages.append((row_id, target, body))
            stored.setdefault(target, []).append((row_id, command))
        db.executemany(SQL["add_message"], messages)
        return StoredMessages(
            known_partitions=partitions,
            rows={
                partition: self._prepend_unseen(db, partition, rows)
                for partition, rows in stored.items()
            },
            created=[(partition, command.execution_id) for partition, command in creations]
            if is_new
            else (),
            pending=[
                command.execution_id
                for _, command in creations
                if is_new or _is_pending(db, command.execution_id)
            ],
        )

    def apply(self, stored: StoredMessages) -> None:
        for root, partition in stored.known_partitions.items():
            self._state.routes.remember(root, partition)
        self._state.routes.unstarted.update(
            execution_id
            for partition, execution_id in stored.created
            if partition in self._state.owned.by_number
        )
        for partition, rows in stored.rows.items():
            owned = self._state.owned.by_number.get(partition)
            if owned is None:
                self._wakeup_sender.notify(partition)
            elif rows is None:
                self._read_new_messages(partition)
            else:
                owned.inbox.put_rows(rows)

    def _prepend_unseen(
        self, db: sqlite3.Connection, partition: int, rows: Sequence[tuple[int, Command]]
    ) -> MessageRows | None:
        """Returns the rows, preceded by stored messages that are not yet in the partition's inbox.

        Row ids ascend in the order of transactions, so all earlier messages of other processes are
        already visible. Returns None if this process does not own the partition.
        """
        owned = self._state.owned.by_number.get(partition)
        if owned is None:
            return None
        span = (partition, owned.inbox.last_row, rows[0][0])
        return [*db.execute(SQL["list_messages_before"], span).fetchall(), *rows]


def _get_root(command: Command) -> str:
    return get_root_id(ExecutionId(command.aggregate_id))


def _find_partitions(db: sqlite3.Connection, commands: Sequence[CreateExecution]) -> dict[str, int]:
    """Returns the partition of each root that exists already.

    The lookup is needed because an execution that is created a second time may be in a partition of
    another process.
    """
    roots = {get_root_id(command.execution_id) for command in commands}
    rows = {root: db.execute(SQL["get_home"], (root,)).fetchone() for root in roots}
    return {root: int(row[0]) for root, row in rows.items() if row is not None}


def _is_pending(db: sqlite3.Connection, execution_id: ExecutionId) -> bool:
    row = db.execute(SQL["get_state"], (execution_id,)).fetchone()
    return row is not None and row[0] == ExecutionState.PENDING


class SqliteMailbox:
    """Implements the Mailbox port.

    Callers that send at the same time share one write job, so 2,000 submits take only a few
    statements.
    """

    def __init__(
        self, writer: SqliteWriter, messages: MessageDelivery, blobs: BlobStore, feed: SqliteFeed
    ) -> None:
        self._feed = feed
        self._writer = writer
        self._messages = messages
        self._blobs = blobs
        self._open_batch: tuple[OutgoingCommands, WriteJob[StoredMessages]] | None = None
        # A lock is needed because the writer may be another thread, and a batch must not close
        # while a caller joins it.
        self._lock = threading.Lock()

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Stores the commands and their blobs.

        If the caller is cancelled, the blobs stay, because the commands may have been stored.
        """
        outgoing = self._messages.encode_commands(commands)
        join = self._enqueue_alone if requires_definition else self._join_batch
        try:
            for key, data in blobs.items():
                await self._blobs.put(key, data)
            if outgoing.rows:
                await self._writer.retry_while_busy(lambda: join(outgoing))
        except Exception:
            for key in blobs:
                await self._blobs.delete(key)
            raise

    def _join_batch(self, outgoing: OutgoingCommands) -> WriteJob[StoredMessages]:
        with self._lock:
            if self._open_batch is None or self._open_batch[1].is_settled:
                batch = OutgoingCommands()
                job = self._writer.enqueue(partial(self._write, batch), self._apply)
                self._open_batch = (batch, job)
            batch, job = self._open_batch
            batch.commands += outgoing.commands
            batch.rows += outgoing.rows
        return job

    def _enqueue_alone(self, outgoing: OutgoingCommands) -> WriteJob[StoredMessages]:
        """Enqueues the commands as a separate job, which is refused or written on its own.

        The writer still commits the job in one transaction with the other waiting jobs.
        """
        return self._writer.enqueue(partial(self._write_if_stored, outgoing), self._apply)

    def _write_if_stored(
        self, outgoing: OutgoingCommands, db: sqlite3.Connection
    ) -> StoredMessages:
        for command in outgoing.commands:
            if isinstance(command, CreateExecution):
                version = db.execute(SQL["get_version"], (command.definition,)).fetchone()
                if version is None:
                    raise build_definition_deleted_error(command)
        return self._write(outgoing, db)

    def _write(self, batch: OutgoingCommands, db: sqlite3.Connection) -> StoredMessages:
        with self._lock:
            if self._open_batch is not None and self._open_batch[0] is batch:
                self._open_batch = None
        stored = self._messages.write(db, batch)
        write_feed_entries(db, build_pending_entries(stored.pending))
        return stored

    def _apply(self, stored: StoredMessages) -> None:
        self._messages.apply(stored)
        self._feed.arrived.set()
