"""Who owns a partition: a kernel lock for who lives, epoch and nonce for who may write."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from runnel.backends.local.board import TaskBoard
from runnel.backends.local.inbox import LocalInbox
from runnel.backends.local.timers import LocalTimers
from runnel.backends.sqlite.bell import Bell
from runnel.backends.sqlite.limit_mail import LimitMail
from runnel.backends.sqlite.limits import Limits
from runnel.backends.sqlite.locks import PartitionLocks
from runnel.backends.sqlite.partition import Owned, OwnedPartitions
from runnel.backends.sqlite.queries import SQL
from runnel.backends.sqlite.reader import Reader
from runnel.backends.sqlite.routes import Routes
from runnel.backends.sqlite.rows import timer_of
from runnel.backends.sqlite.running_file import RunningFile
from runnel.backends.sqlite.writer import Writer
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import Lease, LeaseRecord, TimerSet


@dataclass(slots=True, frozen=True, kw_only=True)
class Taken:
    """What the new owner finds stored."""

    lease: Lease
    messages: list[tuple[int, bytes]]
    timers: list[TimerSet]


class Leases:
    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        ids: Ids,
        writer: Writer,
        reader: Reader,
        owned: OwnedPartitions,
        board: TaskBoard,
        routes: Routes,
        keys: Limits,
        limit_mail: LimitMail,
    ) -> None:
        self._limit_mail = limit_mail
        self._keys = keys
        self.locks = PartitionLocks(folder)
        self._folder = folder
        self._clock = clock
        self._ids = ids
        self._writer = writer
        self._reader = reader
        self._owned = owned
        self._board = board
        self._routes = routes
        # The nonce of each acquire that is under way.
        self._asked: dict[int, str] = {}

    async def claim_home(self) -> int:
        """Keeps the lock of the partition it names until `close`, whatever happens to its lease.

        What this process makes from now on goes there: nobody else may ever call it home.
        """
        if self._routes.home is None or not self.locks.holds(self._routes.home):
            self._routes.home = await self._find_home()
        return self._routes.home

    def observe(self, partition: int) -> LeaseRecord | None:
        if self._is_mine_to_take(partition) or self.locks.is_free(partition):
            return None
        rows = self._reader.rows("get_lease", (partition,))
        owner, epoch, counter = rows[0] if rows else ("", 0, 0)
        return LeaseRecord(partition=partition, owner=owner, epoch=epoch, counter=counter)

    async def acquire(self, partition: int, owner: str) -> Lease:
        was_locked = self.locks.holds(partition)
        if not self._is_takeable(partition):
            raise LeaseHeldError(partition, self._owner_of(partition))
        nonce = self._asked[partition] = self._ids.nonce()

        def run(db: sqlite3.Connection) -> Taken:
            if self._asked.get(partition) != nonce:
                raise StoreError(f"nobody waits for partition {partition} any more")
            return _take(db, partition, owner, nonce)

        try:
            taken = await self._writer.submit(run, self._begin)
        except BaseException:
            # Before the lock is free: the job may still be queued, and must not shut out whoever
            # gets the lock next.
            del self._asked[partition]
            self._leave(partition)
            if not was_locked:
                self.locks.free(partition)
            raise
        del self._asked[partition]
        return taken.lease

    async def renew(self, lease: Lease) -> None:
        key = (lease.partition, lease.epoch, lease.nonce)

        def run(db: sqlite3.Connection) -> None:
            if db.execute(SQL["renew"], key).rowcount != 1:
                raise FencedError(
                    lease.partition, held=f"epoch {lease.epoch}", current="another turn"
                )

        await self._writer.submit(run)

    async def release(self, lease: Lease) -> None:
        key = (lease.partition, lease.epoch, lease.nonce)
        await self._writer.submit(lambda db: db.execute(SQL["release"], key).rowcount)
        if self._owned.find(lease) is not None:
            self._end(lease.partition)

    def close(self) -> None:
        for partition in list(self._owned.by_number):
            self._end(partition)
        self.locks.free_all()

    def _is_takeable(self, partition: int) -> bool:
        if self._is_mine_to_take(partition):
            return partition not in self._asked
        return not self.locks.holds(partition) and self.locks.take(partition)

    def _is_mine_to_take(self, partition: int) -> bool:
        """Locked by `claim_home`, and not acquired since."""
        return self.locks.holds(partition) and partition not in self._owned.by_number

    def _owner_of(self, partition: int) -> str:
        rows = self._reader.rows("get_lease", (partition,))
        return rows[0][0] if rows and rows[0][0] else "another process"

    def _begin(self, taken: Taken) -> None:
        """Tasks of an earlier turn in this process are void: its owner issues them anew."""
        partition = taken.lease.partition
        if self._asked.get(partition) != taken.lease.nonce:
            return  # whoever asked was cancelled meanwhile
        self._leave(partition)
        inbox = LocalInbox()
        inbox.put_rows(taken.messages)
        bell = Bell(self._folder, partition, lambda: self.sweep(partition))
        running = RunningFile(self._folder / f"p{partition}.running")
        self._owned.by_number[partition] = Owned(
            lease=taken.lease,
            inbox=inbox,
            timers=LocalTimers(taken.timers),
            bell=bell,
            running=running,
            swept_at=self._clock.monotonic(),
        )
        bell.hang()
        self._board.adopt(partition, running)
        if self._routes.home is None:
            self._routes.home = partition
        if partition == self._routes.home:
            for command in self._limit_mail.take_kept():
                inbox.put(command)

    def sweep(self, partition: int) -> None:
        """Looks for messages that other processes have stored."""
        owned = self._owned.by_number.get(partition)
        if owned is not None:
            owned.swept_at = self._clock.monotonic()
            owned.inbox.put_rows(
                self._reader.rows("list_messages", (partition, owned.inbox.last_row))
            )

    def _end(self, partition: int) -> None:
        self._routes.unbegun.clear()
        self._leave(partition)
        if partition != self._routes.home:
            self.locks.free(partition)
        if not self._owned.by_number:
            self._keys.clear()
            self._limit_mail.clear()

    def _leave(self, partition: int) -> None:
        owned = self._owned.by_number.pop(partition, None)
        if owned is not None:
            owned.bell.take_down()
            owned.inbox.arrived.set()
            self._limit_mail.leave(partition, owned.inbox.unconsumed())
        self._board.drop_partition(partition)
        if owned is not None:
            owned.running.close()

    async def _find_home(self) -> int:
        known = [row[0] for row in self._reader.rows("list_partitions")]
        for partition in known:
            if not self.locks.holds(partition) and self._can_lock(partition):
                if not self._reader.rows("has_work", (partition,))[0][0]:
                    return int(partition)
                self.locks.free(partition)
        partition = max(known, default=-1) + 1
        while self.locks.holds(partition) or not self.locks.take(partition):
            partition += 1
        try:
            await self._writer.submit(lambda db: db.execute(SQL["add_partition"], (partition,)))
        except BaseException:
            self.locks.free(partition)
            raise
        return partition

    def _can_lock(self, partition: int) -> bool:
        try:
            return self.locks.take(partition)
        except PartitionUnavailableError:
            return False  # its file is another user's, say: no home for this process


def _take(db: sqlite3.Connection, partition: int, owner: str, nonce: str) -> Taken:
    db.execute(SQL["add_partition"], (partition,))
    epoch, sequence = db.execute(SQL["acquire"], (owner, nonce, partition)).fetchall()[0]
    lease = Lease(partition=partition, owner=owner, epoch=epoch, nonce=nonce, sequence=sequence)
    messages = db.execute(SQL["list_messages"], (partition, 0)).fetchall()
    timers = [timer_of(row) for row in db.execute(SQL["list_timers"], (partition,))]
    return Taken(lease=lease, messages=messages, timers=timers)
