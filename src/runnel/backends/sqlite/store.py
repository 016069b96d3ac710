"""Partitions and their owners, in one database file shared by the processes of a machine."""

from collections.abc import Mapping, Sequence

from runnel.backends.local.attendance import LocalAttendance
from runnel.backends.local.board import TaskBoard
from runnel.backends.local.bounds import check_bounds
from runnel.backends.sqlite.commits import Commits
from runnel.backends.sqlite.leases import Leases
from runnel.backends.sqlite.limits import Limits, is_limit
from runnel.backends.sqlite.partition import Owned, OwnedPartitions
from runnel.backends.sqlite.reader import Reader
from runnel.backends.sqlite.routes import Routes
from runnel.core.effects import TimerKey
from runnel.core.ids import ExecutionId, Token
from runnel.core.retry import ErrorInfo
from runnel.ports.clock import Clock
from runnel.ports.registry import Attendance, QueueRecord, WorkerRecord
from runnel.ports.store import Commit, CommitLimits, InboxEntry, Lease, LeaseRecord, TimerSet

# How long a message from another process may lie unseen when its ring was missed.
SWEEP_S = 1.0


class SqliteStore:
    """Who takes part is known within one process only: embedded, nobody shares partitions.

    Concurrency keys are in the memory of the process, for all its partitions: so they fail
    together.
    """

    fails_together = True

    def __init__(
        self,
        *,
        clock: Clock,
        reader: Reader,
        owned: OwnedPartitions,
        board: TaskBoard,
        leases: Leases,
        commits: Commits,
        routes: Routes,
        keys: Limits,
        limits: CommitLimits,
    ) -> None:
        self._keys = keys
        self.limits = limits
        self._clock = clock
        self._reader = reader
        self._owned = owned
        self._board = board
        self._leases = leases
        self._commits = commits
        self._routes = routes
        self._attendance = LocalAttendance()

    async def partitions(self) -> Sequence[int]:
        return [row[0] for row in self._reader.rows("list_partitions")]

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        """A look for one that nobody knows takes 6 to 10 µs, of 290 for a small execution."""
        return self._routes.place(aggregate_id) if is_new else self._routes.find(aggregate_id)

    async def observe(self, partition: int) -> LeaseRecord | None:
        return self._leases.observe(partition)

    async def acquire(
        self, partition: int, owner: str, *, over: LeaseRecord | None = None
    ) -> Lease:
        """`over` changes nothing: the kernel frees the lock of whoever is dead, and only then."""
        return await self._leases.acquire(partition, owner)

    async def restore(self, lease: Lease) -> Lease:
        return lease

    async def renew(self, lease: Lease) -> None:
        await self._leases.renew(lease)

    async def release(self, lease: Lease) -> None:
        await self._leases.release(lease)

    async def attend(self, owner: str) -> Sequence[Attendance]:
        return self._attendance.attend(owner)

    async def depart(self, owner: str, *, counter: int | None = None) -> None:
        self._attendance.depart(owner, counter)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        check_bounds(commit, self.limits)
        await self._commits.write(lease, commit)

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        deadline = self._clock.monotonic() + wait_s
        while True:
            owned = self._owned.get(lease)
            if wait_s > 0 and owned.inbox.has_unread:
                return await owned.inbox.gather(limit)
            entries = self._take(owned, limit)
            left_s = deadline - self._clock.monotonic()
            if entries or left_s <= 0:
                return entries
            await self._clock.wait(owned.inbox.arrived, min(left_s, SWEEP_S))

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerSet]:
        return self._owned.get(lease).timers.due(now, limit=limit)

    async def next_due(self, lease: Lease) -> float | None:
        return self._owned.get(lease).timers.next_due()

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        if is_limit(aggregate_id):
            return self._keys.load(aggregate_id)
        if aggregate_id in self._routes.unbegun:
            return ()
        return [row[0] for row in self._reader.rows("load_history", (aggregate_id,))]

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        return [await self.load(each) for each in aggregate_ids]

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        return [row[0] for row in self._reader.rows("list_running", (partition,))]

    async def keys_of(self, partition: int) -> Sequence[str]:
        return self._keys.keys() if partition == self._routes.home else ()

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[Token]
    ) -> Mapping[Token, bool | None]:
        owned = self._owned.by_number.get(partition)
        reported = set[Token]() if owned is None else owned.inbox.reported()
        return {
            token: None if owned is None else owned.running.has_killed(token)
            for token in tokens
            if token not in reported and not self._board.knows(token)
        }

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        owned = self._owned.by_number.get(partition)
        return [key for key in keys if owned is None or key not in owned.timers]

    async def unread_s(self, partition: int) -> float:
        return 0.0

    async def unarchived(self, partition: int) -> int:
        return 0

    async def lose_tasks_of(self, judged: WorkerRecord) -> int:
        return self._board.lose_dead(judged)

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        before = self._clock.now() - waiting_s
        return self._board.reject(queue, error, issued_before=before, limit=limit)

    async def forget_queue(self, judged: QueueRecord) -> bool:
        """An empty queue is nothing here."""
        return True

    def _take(self, owned: Owned, limit: int) -> Sequence[InboxEntry]:
        entries = owned.inbox.take(limit)
        if entries or self._clock.monotonic() - owned.swept_at < SWEEP_S:
            return entries
        self._leases.sweep(owned.lease.partition)
        return owned.inbox.take(limit)
