"""Leases of partitions in a data directory.

A kernel lock shows that the owner of a partition is alive. Epoch and nonce fence the writes of
former owners.
"""

import fcntl
import os
import sqlite3
import threading
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from weakref import WeakSet

from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.sqlite.database import SQL, SqliteReader, decode_timer_row
from runnel.backends.sqlite.partition import OwnedPartition, SqliteProcessState
from runnel.backends.sqlite.running_tasks_file import PROCESS_ID_BYTES, RunningTasksFile
from runnel.backends.sqlite.wakeup_socket import WakeupListener
from runnel.backends.sqlite.writer import SqliteWriter
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.store import Lease, LeaseRecord, Submission, TimerRecord

# -- kernel locks of partitions, which the kernel frees when their process ends -----------------


class PartitionLocks:
    """One kernel lock per partition; the kernel frees it when the process ends.

    A lock is bound to an open file, so two backends in one process exclude each other as well.

    A forked child inherits the open files of its parent, and would keep the locks after the
    parent's death. The child therefore closes these files before any other code runs in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}
        with _fork_lock:
            _all_locks.add(self)

    def try_lock(self, partition: int) -> bool:
        """Takes the lock of the partition.

        Returns True if this backend holds the lock after the call. Returns False if another process
        or backend holds the lock.
        """
        if partition in self._held:
            return True
        with _fork_lock:
            handle = self._open(partition)
            if not _try_flock(handle, fcntl.LOCK_EX):
                os.close(handle)
                return False
            self._held[partition] = handle
        return True

    def holds(self, partition: int) -> bool:
        return partition in self._held

    def is_free(self, partition: int) -> bool:
        """Returns True if neither this backend nor any other process holds the lock.

        The test takes a shared lock for a few microseconds. A process that tries to acquire the
        partition in that time gets LeaseHeldError and tries again later.
        """
        if partition in self._held:
            return False
        with _fork_lock:
            handle = self._open(partition)
            try:
                return _try_flock(handle, fcntl.LOCK_SH)
            finally:
                os.close(handle)

    def unlock(self, partition: int) -> None:
        with _fork_lock:
            handle = self._held.pop(partition, None)
            if handle is not None:
                os.close(handle)

    def unlock_all(self) -> None:
        for partition in list(self._held):
            self.unlock(partition)

    def close_inherited(self) -> None:
        """Closes the lock files in a forked child.

        Does not unlock them, because that would free the parent's locks.
        """
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


def _try_flock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# The fork lock ensures that every lock file that is open during a fork is registered here. User
# code can fork on any thread.
_fork_lock = threading.RLock()
_all_locks: "WeakSet[PartitionLocks]" = WeakSet()


def _after_fork_in_child() -> None:
    for locks in _all_locks:
        locks.close_inherited()
    _fork_lock.release()


os.register_at_fork(
    before=_fork_lock.acquire,
    after_in_parent=_fork_lock.release,
    after_in_child=_after_fork_in_child,
)


@dataclass(slots=True, frozen=True, kw_only=True)
class AcquiredPartition:
    """A newly acquired lease with the stored messages and timers of its partition."""

    lease: Lease
    messages: list[tuple[int, bytes]]
    timers: list[TimerRecord]


class SqliteLeases:
    def __init__(
        self,
        folder: Path,
        state: SqliteProcessState,
        *,
        clock: Clock,
        ids: IdGenerator,
        writer: SqliteWriter,
        reader: SqliteReader,
    ) -> None:
        self.locks = PartitionLocks(folder)
        self._folder = folder
        self._clock = clock
        self._ids = ids
        self._writer = writer
        self._reader = reader
        self._state = state
        # The nonce of each acquisition that is in progress, by partition.
        self._acquiring: dict[int, str] = {}
        self._process_id = blake2b(ids.nonce().encode(), digest_size=PROCESS_ID_BYTES).digest()

    async def claim_home_partition(self, submits: Submission | None = None) -> int:
        """Returns the partition for the new executions of this process.

        An engine locks its home partition until `close`, even if the lease is lost, so no other
        process can use the partition as its home. With `submits`, locks nothing: see
        `_find_submission_home`.
        """
        if submits is not None:
            self._state.routes.home = await self._find_submission_home(submits)
        elif self._state.routes.home is None or not self.locks.holds(self._state.routes.home):
            self._state.routes.home = await self._find_home()
        return self._state.routes.home

    def observe(self, partition: int) -> LeaseRecord | None:
        if self._is_locked_unowned(partition) or self.locks.is_free(partition):
            return None
        rows = self._reader.rows("get_lease", (partition,))
        owner, epoch, counter = rows[0] if rows else ("", 0, 0)
        return LeaseRecord(partition=partition, owner=owner, epoch=epoch, counter=counter)

    async def acquire(self, partition: int, owner: str) -> Lease:
        was_locked = self.locks.holds(partition)
        if not self._try_reserve(partition):
            raise LeaseHeldError(partition, self._read_owner(partition))
        nonce = self._acquiring[partition] = self._ids.nonce()

        def run(db: sqlite3.Connection) -> AcquiredPartition:
            if self._acquiring.get(partition) != nonce:
                raise StoreError(f"the request for partition {partition} was cancelled")
            return _acquire(db, partition, owner, nonce)

        try:
            acquired = await self._writer.submit(run, self._start_owning)
        except BaseException:
            # The nonce is removed before the lock is freed. The write job may still be queued, and
            # must not fence out the next process that gets the lock.
            del self._acquiring[partition]
            self._discard_owned(partition)
            if not was_locked:
                self.locks.unlock(partition)
            raise
        del self._acquiring[partition]
        return acquired.lease

    async def renew(self, lease: Lease) -> None:
        key = (lease.partition, lease.epoch, lease.nonce)

        def run(db: sqlite3.Connection) -> None:
            if db.execute(SQL["renew"], key).rowcount != 1:
                raise FencedError(
                    lease.partition, held=f"epoch {lease.epoch}", current="another lease"
                )

        await self._writer.submit(run)

    async def release(self, lease: Lease) -> None:
        key = (lease.partition, lease.epoch, lease.nonce)
        await self._writer.submit(lambda db: db.execute(SQL["release"], key).rowcount)
        if self._state.owned.find(lease) is not None:
            self._stop_owning(lease.partition)

    def close(self) -> None:
        for partition in list(self._state.owned.by_number):
            self._stop_owning(partition)
        self.locks.unlock_all()

    def _try_reserve(self, partition: int) -> bool:
        if self._is_locked_unowned(partition):
            return partition not in self._acquiring
        return not self.locks.holds(partition) and self.locks.try_lock(partition)

    def _is_locked_unowned(self, partition: int) -> bool:
        """Returns True if `claim_home_partition` locked the partition and no lease was acquired
        since then.
        """
        return self.locks.holds(partition) and partition not in self._state.owned.by_number

    def _read_owner(self, partition: int) -> str:
        rows = self._reader.rows("get_lease", (partition,))
        return rows[0][0] if rows and rows[0][0] else "another process"

    def _start_owning(self, acquired: AcquiredPartition) -> None:
        """Builds the in-memory state of an acquired partition.

        Tasks from an earlier lease of this process are dropped; the owner issues them again.
        """
        partition = acquired.lease.partition
        if self._acquiring.get(partition) != acquired.lease.nonce:
            return  # the caller was cancelled during the write
        self._discard_owned(partition)
        inbox = LocalInbox()
        inbox.put_rows(acquired.messages)
        wakeup_listener = WakeupListener(
            self._folder, partition, lambda: self.read_new_messages(partition)
        )
        running = RunningTasksFile(
            self._folder / f"p{partition}.running", process_id=self._process_id
        )
        self._state.owned.by_number[partition] = OwnedPartition(
            lease=acquired.lease,
            inbox=inbox,
            timers=LocalTimers(acquired.timers),
            wakeup_listener=wakeup_listener,
            running_tasks=running,
            polled_at=self._clock.monotonic(),
        )
        wakeup_listener.open()
        self._state.board.track_running(partition, running)
        if self._state.routes.home is None:
            self._state.routes.home = partition
        if partition == self._state.routes.home:
            for command in self._state.limit_messages.take_undelivered():
                inbox.put(command)

    def read_new_messages(self, partition: int) -> None:
        """Reads the messages that other processes have stored for the partition."""
        owned = self._state.owned.by_number.get(partition)
        if owned is not None:
            owned.polled_at = self._clock.monotonic()
            owned.inbox.put_rows(
                self._reader.rows("list_messages", (partition, owned.inbox.last_row))
            )

    def _stop_owning(self, partition: int) -> None:
        self._state.routes.unstarted.clear()
        self._discard_owned(partition)
        if partition != self._state.routes.home:
            self.locks.unlock(partition)
        if not self._state.owned.by_number:
            self._state.limit_histories.clear()
            self._state.limit_messages.clear()

    def _discard_owned(self, partition: int) -> None:
        owned = self._state.owned.by_number.pop(partition, None)
        if owned is not None:
            owned.wakeup_listener.close()
            owned.inbox.arrived.set()
            self._state.limit_messages.leave_partition(partition, owned.inbox.list_unconsumed())
        self._state.board.drop_partition(partition)
        if owned is not None:
            owned.running_tasks.close()

    async def _find_home(self) -> int:
        for (partition,) in self._reader.rows("list_homes"):
            if not self.locks.holds(partition) and self._try_lock(partition):
                if not self._reader.rows("has_work", (partition,))[0][0]:
                    return int(partition)
                self.locks.unlock(partition)
        partition = max([row[0] for row in self._reader.rows("list_partitions")], default=-1) + 1
        while not await self._try_to_add_home(partition):
            partition += 1
        return partition

    async def _try_to_add_home(self, partition: int) -> bool:
        """Locks and adds the partition; returns False if another process has done so."""
        if self.locks.holds(partition) or not self.locks.try_lock(partition):
            return False
        try:
            added = await self._writer.submit(
                lambda db: db.execute(SQL["add_partition"], (partition,)).rowcount
            )
        except BaseException:
            self.locks.unlock(partition)
            raise
        if not added:
            self.locks.unlock(partition)
        return bool(added)

    async def _find_submission_home(self, submits: Submission) -> int:
        """Returns a partition of a living owner that runs the execution, or of the same submitter.

        All programs of one source share a partition, so that neither the cost of a submit nor the
        number of partitions grows with the executions that no engine has run yet.
        """
        for partition, owner in self._reader.rows("list_owners"):
            if submits.joins(owner) and self.observe(partition) is not None:
                return int(partition)
        for (partition,) in self._reader.rows("list_submitted", (submits.source,)):
            if self.observe(partition) is None:
                return int(partition)
        rows = await self._writer.submit(
            lambda db: db.execute(SQL["add_submitted"], (submits.source,)).fetchall()
        )
        return int(rows[0][0])

    def _try_lock(self, partition: int) -> bool:
        try:
            return self.locks.try_lock(partition)
        except PartitionUnavailableError:
            # For example, another user owns the lock file. Such a partition can't be the home.
            return False


def _acquire(db: sqlite3.Connection, partition: int, owner: str, nonce: str) -> AcquiredPartition:
    db.execute(SQL["add_partition"], (partition,))
    epoch, sequence = db.execute(SQL["acquire"], (owner, nonce, partition)).fetchall()[0]
    lease = Lease(partition=partition, owner=owner, epoch=epoch, nonce=nonce, sequence=sequence)
    messages = db.execute(SQL["list_messages"], (partition, 0)).fetchall()
    timers = [decode_timer_row(row) for row in db.execute(SQL["list_timers"], (partition,))]
    return AcquiredPartition(lease=lease, messages=messages, timers=timers)
