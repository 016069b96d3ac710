"""Who owns a partition: a kernel lock for who lives, epoch and nonce for who may write."""

import fcntl
import os
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.local.task_board import TaskBoard
from runnel.backends.sqlite.database import SQL, Reader, timer_of
from runnel.backends.sqlite.feed import Bell
from runnel.backends.sqlite.inbox import LimitMail
from runnel.backends.sqlite.partition import Limits, Owned, OwnedPartitions, Routes
from runnel.backends.sqlite.running_tasks_file import RunningFile
from runnel.backends.sqlite.writer import Writer
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import Lease, LeaseRecord, TimerSet

# One kernel lock per partition: held by a living process, freed by the kernel when it ends.


class PartitionLocks:
    """Locks belong to an open file: two backends exclude each other within one process too.

    A forked child shares the open files of its parent, and would keep their locks after the
    parent's death: it closes them before anything else runs in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}
        with _no_fork:
            _all.add(self)

    def take(self, partition: int) -> bool:
        """False when somebody else has it; True also when this backend has it already."""
        if partition in self._held:
            return True
        with _no_fork:
            handle = self._open(partition)
            if not _lock(handle, fcntl.LOCK_EX):
                os.close(handle)
                return False
            self._held[partition] = handle
        return True

    def holds(self, partition: int) -> bool:
        return partition in self._held

    def is_free(self, partition: int) -> bool:
        """Whether nobody at all has it, this backend included.

        The test takes a shared lock for a moment: whoever wants the partition in that moment is
        told that it is held, and comes back.
        """
        if partition in self._held:
            return False
        with _no_fork:
            handle = self._open(partition)
            try:
                return _lock(handle, fcntl.LOCK_SH)
            finally:
                os.close(handle)

    def free(self, partition: int) -> None:
        with _no_fork:
            handle = self._held.pop(partition, None)
            if handle is not None:
                os.close(handle)

    def free_all(self) -> None:
        for partition in list(self._held):
            self.free(partition)

    def forget_inherited(self) -> None:
        """In a forked child: closing leaves the lock with the parent, unlocking would not."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _open(self, partition: int) -> int:
        path = self._folder / f"p{partition}.lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PartitionUnavailableError(
                partition, f"its lock file can't be opened: {error}"
            ) from error


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# A lock file is never open in the moment of a fork without being known here: user code forks on
# threads of its own.
_no_fork = threading.RLock()
_all: "WeakSet[PartitionLocks]" = WeakSet()


def _after_fork_in_child() -> None:
    for locks in _all:
        locks.forget_inherited()
    _no_fork.release()


os.register_at_fork(
    before=_no_fork.acquire,
    after_in_parent=_no_fork.release,
    after_in_child=_after_fork_in_child,
)


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
