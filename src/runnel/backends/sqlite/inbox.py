"""Commands on their way to a partition: stored, then put into the owner's memory or announced."""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from runnel.backends.feed_log import pending_entries
from runnel.backends.matching import no_longer_stored
from runnel.backends.sqlite.database import SQL, header_row
from runnel.backends.sqlite.feed import Ringer, SqliteFeed, write_entries
from runnel.backends.sqlite.partition import Owned, OwnedPartitions, Routes, is_limit
from runnel.backends.sqlite.writer import Job, Writer
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
from runnel.core.ids import ExecutionId, Token, root_of
from runnel.core.states import ExecutionState
from runnel.ports.records import BlobStore
from runnel.ports.store import NO_BLOBS, Commit, pending_header


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


# What keys and those who ask for them tell each other: in memory, as the keys themselves.
#
# Stored, it would outlive the keys: a grant of a process that was killed, read by the next one,
# lets one attempt more run than the key allows.

LIMIT_COMMANDS = (AcquireLimit, ReleaseLimit, LimitGranted)


class LimitMail:
    """Keys live in the home partition; who asks may live in another one that is owned here."""

    def __init__(self, owned: OwnedPartitions, routes: Routes) -> None:
        self._owned = owned
        self._routes = routes
        # For each partition but the home: what its attempts hold or wait for.
        self._asked: dict[int, dict[Token, str]] = {}
        self._kept: list[Command] = []

    def send(self, sender: Owned, commit: Commit) -> None:
        """Those of its messages that are about keys.

        A grant for a partition that was left is lost: its next owner asks again.
        """
        grants = [each for each in commit.messages if isinstance(each, LimitGranted)]
        void = _void(sender, commit) if grants else ()
        for grant in grants:
            if grant.holder not in void:
                self._owned.deliver(self._routes.find(grant.aggregate_id), grant)
        for command in commit.messages:
            if isinstance(command, AcquireLimit | ReleaseLimit):
                self._note(sender.lease.partition, command)
                self._tell_key(command)

    def leave(self, partition: int, unconsumed: Iterable[Command]) -> None:
        """Frees the keys of its attempts, which have ended here; what keys were told is kept."""
        self._kept += [command for command in unconsumed if isinstance(command, LimitCommand)]
        for holder, key in self._asked.pop(partition, {}).items():
            self._tell_key(ReleaseLimit(key=key, holder=holder))

    def take_kept(self) -> list[Command]:
        """What the home's next owner has to hear first."""
        kept, self._kept = self._kept, []
        return kept

    def clear(self) -> None:
        self._asked.clear()
        self._kept.clear()

    def _note(self, sender: int, command: AcquireLimit | ReleaseLimit) -> None:
        asked = self._asked.setdefault(sender, {})
        if isinstance(command, AcquireLimit):
            asked[command.holder] = command.key
        else:
            asked.pop(command.holder, None)

    def _tell_key(self, command: LimitCommand) -> None:
        owned = self._owned.by_number.get(self._routes.find(command.aggregate_id))
        if owned is None:
            self._kept.append(command)
        else:
            owned.inbox.put(command)


def _void(sender: Owned, commit: Commit) -> set[Token]:
    """Who has given back, in this commit or right after it, what this commit grants.

    A partition that was left and taken again has the same attempts: they ask anew, and must not
    hear the answer to their first question.
    """
    void: set[Token] = set()
    for history in commit.histories:
        if is_limit(history.aggregate_id):
            for event in decode_entry(history.entry).events:
                if isinstance(event, LimitHeld):
                    void.discard(event.holder)
                elif isinstance(event, LimitQueued | LimitReleased):
                    void.add(event.holder)
    void.update(
        command.holder for command in sender.inbox.unconsumed() if isinstance(command, ReleaseLimit)
    )
    return void
