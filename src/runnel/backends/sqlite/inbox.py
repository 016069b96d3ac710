"""Delivery of commands to partitions.

Commands are stored first. Then they are put into the inbox of an owner in this process, or the
owner in another process is woken through its socket.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from runnel.backends.feed_log import build_pending_entries
from runnel.backends.mailboxes import build_definition_deleted_error
from runnel.backends.row_codec import build_header_row
from runnel.backends.sqlite.database import SQL
from runnel.backends.sqlite.feed import SqliteFeed, write_feed_entries
from runnel.backends.sqlite.partition import (
    OwnedPartition,
    PartitionRegistry,
    PartitionRoutes,
    is_limit,
)
from runnel.backends.sqlite.wakeup_socket import WakeupSender
from runnel.backends.sqlite.writer import SqliteWriter, WriteJob
from runnel.core.codec import decode_entry, encode_message
from runnel.core.commands import (
    AcquireLimit,
    Command,
    CreateExecution,
    LimitCommand,
    LimitGranted,
    ReleaseLimit,
)
from runnel.core.events import LimitHeld, LimitQueued, LimitReleased
from runnel.core.ids import ExecutionId, TaskToken, get_root_id
from runnel.core.states import ExecutionState
from runnel.ports.records import BlobStore
from runnel.ports.store import NO_BLOBS, Commit, make_pending_header


@dataclass(slots=True)
class OutgoingCommands:
    """The commands of one write job, encoded before its transaction begins."""

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

    `read_new_messages` reads the stored messages that an owned partition has not seen yet.
    """

    def __init__(
        self,
        owned: PartitionRegistry,
        *,
        routes: PartitionRoutes,
        wakeup_sender: WakeupSender,
        read_new_messages: Callable[[int], None],
    ) -> None:
        self._owned = owned
        self._routes = routes
        self._wakeup_sender = wakeup_sender
        self._read_new_messages = read_new_messages

    def encode_commands(self, commands: Sequence[Command]) -> OutgoingCommands:
        rows = [(self._route(command), encode_message(command)) for command in commands]
        return OutgoingCommands(list(commands), rows)

    def _route(self, command: Command) -> int:
        if isinstance(command, CreateExecution):
            return self._routes.route_new(get_root_id(command.execution_id))
        return self._routes.find(command.aggregate_id)

    def write(self, db: sqlite3.Connection, outgoing: OutgoingCommands) -> StoredMessages:
        """Stores the commands.

        The result has the new rows of each partition in order, after earlier rows of other
        processes that the partition has not seen.
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
            self._routes.remember(root, partition)
        self._routes.unstarted.update(
            execution_id
            for partition, execution_id in stored.created
            if partition in self._owned.by_number
        )
        for partition, rows in stored.rows.items():
            owned = self._owned.by_number.get(partition)
            if owned is None:
                self._wakeup_sender.notify(partition)
            elif rows is None:
                self._read_new_messages(partition)
            else:
                owned.inbox.put_rows(rows)

    def _prepend_unseen(
        self, db: sqlite3.Connection, partition: int, rows: Sequence[tuple[int, Command]]
    ) -> MessageRows | None:
        """Returns the rows, preceded by stored messages that the partition has not seen.

        Ids ascend in the order of transactions, so messages that other processes sent before are
        visible. Returns None if this process does not own the partition.
        """
        owned = self._owned.by_number.get(partition)
        if owned is None:
            return None
        span = (partition, owned.inbox.last_row, rows[0][0])
        return [*db.execute(SQL["list_messages_before"], span).fetchall(), *rows]


def _get_root(command: Command) -> str:
    return get_root_id(ExecutionId(command.aggregate_id))


def _find_partitions(db: sqlite3.Connection, commands: Sequence[CreateExecution]) -> dict[str, int]:
    """Returns the partition of each root that exists already.

    An execution that is created a second time may be in a partition of another process.
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
        # The writer may be another thread: joining a batch and closing it must exclude each other.
        self._lock = threading.Lock()

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Stores the commands and their blobs.

        If the caller is cancelled, the commands may have been sent. The blobs therefore stay.
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
        """Enqueues a job that shares the transaction of other jobs, but can be refused alone."""
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


# Messages between concurrency keys and the executions that request them. They are kept in memory,
# like the keys.
#
# Stored messages would outlive the keys: if a process is killed and the next one reads its grant,
# one more attempt runs than the key allows.

LIMIT_COMMANDS = (AcquireLimit, ReleaseLimit, LimitGranted)


class LimitMessages:
    """Delivers messages from and to concurrency keys.

    All keys are in the home partition. The requesting execution can be in any partition that this
    process owns.
    """

    def __init__(self, owned: PartitionRegistry, routes: PartitionRoutes) -> None:
        self._owned = owned
        self._routes = routes
        # For each partition except the home: the keys that its attempts hold or wait for.
        self._keys_by_holder: dict[int, dict[TaskToken, str]] = {}
        self._undelivered: list[Command] = []

    def send(self, sender: OwnedPartition, commit: Commit) -> None:
        """Delivers those messages of the commit that concern concurrency keys.

        A grant for a partition that this process no longer owns is lost: its next owner requests
        the key again.
        """
        grants = [command for command in commit.messages if isinstance(command, LimitGranted)]
        void_holders = _find_void_holders(sender, commit) if grants else ()
        for grant in grants:
            if grant.holder not in void_holders:
                self._owned.deliver(self._routes.find(grant.aggregate_id), grant)
        for command in commit.messages:
            if isinstance(command, AcquireLimit | ReleaseLimit):
                self._record_request(sender.lease.partition, command)
                self._deliver_to_key(command)

    def leave_partition(self, partition: int, unconsumed: Iterable[Command]) -> None:
        """Releases the keys of the partition's attempts, which have ended in this process.

        Keeps unconsumed messages to keys for the next owner of the home partition.
        """
        self._undelivered += [
            command for command in unconsumed if isinstance(command, LimitCommand)
        ]
        for holder, key in self._keys_by_holder.pop(partition, {}).items():
            self._deliver_to_key(ReleaseLimit(key=key, holder=holder))

    def take_undelivered(self) -> list[Command]:
        """Removes and returns the messages that the next owner of the home must process first."""
        undelivered, self._undelivered = self._undelivered, []
        return undelivered

    def clear(self) -> None:
        self._keys_by_holder.clear()
        self._undelivered.clear()

    def _record_request(self, sender: int, command: AcquireLimit | ReleaseLimit) -> None:
        keys_by_holder = self._keys_by_holder.setdefault(sender, {})
        if isinstance(command, AcquireLimit):
            keys_by_holder[command.holder] = command.key
        else:
            keys_by_holder.pop(command.holder, None)

    def _deliver_to_key(self, command: LimitCommand) -> None:
        owned = self._owned.by_number.get(self._routes.find(command.aggregate_id))
        if owned is None:
            self._undelivered.append(command)
        else:
            owned.inbox.put(command)


def _find_void_holders(sender: OwnedPartition, commit: Commit) -> set[TaskToken]:
    """Returns the holders that release, in this commit or right after it, the key that it grants.

    A partition that was given up and acquired again has the same attempts. They request the key
    again, and must not receive the answer to their first request.
    """
    void: set[TaskToken] = set()
    for history in commit.histories:
        if is_limit(history.aggregate_id):
            for event in decode_entry(history.entry).events:
                if isinstance(event, LimitHeld):
                    void.discard(event.holder)
                elif isinstance(event, LimitQueued | LimitReleased):
                    void.add(event.holder)
    void.update(
        command.holder
        for command in sender.inbox.list_unconsumed()
        if isinstance(command, ReleaseLimit)
    )
    return void
