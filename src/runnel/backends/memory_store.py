"""Partitions and their owners, in the memory of one process."""

from collections.abc import Mapping, Sequence

from runnel.backends.feed_entries import entries_of
from runnel.backends.local.bounds import check_bounds
from runnel.backends.memory_state import MemoryState, Partition
from runnel.core.commands import LIMIT_PREFIX, Command
from runnel.core.effects import TimerKey
from runnel.core.ids import ExecutionId, Token
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.errors import FencedError, LeaseHeldError, NotFoundError
from runnel.ports.blobs import BlobStore
from runnel.ports.clock import Clock, Ids
from runnel.ports.registry import Attendance, QueueRecord, WorkerRecord
from runnel.ports.store import (
    NO_BLOBS,
    Commit,
    CommitLimits,
    InboxEntry,
    Lease,
    LeaseRecord,
    TimerSet,
)


class MemoryStore:
    fails_together = False

    def __init__(self, state: MemoryState, *, clock: Clock, ids: Ids, limits: CommitLimits) -> None:
        self.limits = limits
        self._state = state
        self._clock = clock
        self._ids = ids

    async def partitions(self) -> Sequence[int]:
        return range(len(self._state.partitions))

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._state.route(aggregate_id)

    async def observe(self, partition: int) -> LeaseRecord | None:
        return self._state.partitions[partition].record

    async def acquire(
        self, partition: int, owner: str, *, over: LeaseRecord | None = None
    ) -> Lease:
        found = self._state.partitions[partition]
        if found.lease is not None and found.record != over:
            raise LeaseHeldError(partition, found.lease.owner)
        found.epoch += 1
        found.lease = Lease(
            partition=partition,
            owner=owner,
            epoch=found.epoch,
            nonce=self._ids.nonce(),
            sequence=found.sequence,
        )
        found.inbox.rewind()
        return found.lease

    async def restore(self, lease: Lease) -> Lease:
        return lease

    async def renew(self, lease: Lease) -> None:
        self._owned(lease).counter += 1

    async def release(self, lease: Lease) -> None:
        found = self._state.partitions[lease.partition]
        if found.is_held_by(lease):
            found.lease = None
            found.inbox.arrived.set()

    async def attend(self, owner: str) -> Sequence[Attendance]:
        return self._state.attendance.attend(owner)

    async def depart(self, owner: str, *, counter: int | None = None) -> None:
        self._state.attendance.depart(owner, counter)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        partition = self._owned(lease)
        if commit.sequence != partition.sequence + 1:
            raise FencedError(
                partition.number,
                held=f"sequence {commit.sequence - 1}",
                current=f"sequence {partition.sequence}",
            )
        check_bounds(commit, self.limits)
        partition.inbox.check(commit.consumed)
        # Nothing below can fail: this is what makes the commit atomic.
        partition.sequence = commit.sequence
        self._write_aggregates(commit)
        self._write_partition(partition, commit)
        self._state.changes.add(entries_of(commit))
        self._state.send(commit.messages)

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        inbox = self._owned(lease).inbox
        if wait_s <= 0:
            return inbox.take(limit)
        if not inbox.has_unread:
            inbox.arrived.clear()
            await self._clock.wait(inbox.arrived, wait_s)
        return await self._owned(lease).inbox.gather(limit)

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerSet]:
        return self._owned(lease).timers.due(now, limit=limit)

    async def next_due(self, lease: Lease) -> float | None:
        return self._owned(lease).timers.next_due()

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        return tuple(self._state.histories.get(aggregate_id, ()))

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        return [await self.load(each) for each in aggregate_ids]

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        found = [
            header
            for header in self._state.headers.values()
            if header.state is ExecutionState.RUNNING
            and self._state.route(header.execution_id) == partition
        ]
        found.sort(key=lambda header: (header.created_at, header.execution_id))
        return [header.execution_id for header in found]

    async def keys_of(self, partition: int) -> Sequence[str]:
        return [
            id_.removeprefix(LIMIT_PREFIX)
            for id_ in self._state.histories
            if id_.startswith(LIMIT_PREFIX) and self._state.route(id_) == partition
        ]

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[Token]
    ) -> Mapping[Token, bool | None]:
        reported = self._state.partitions[partition].inbox.reported()
        board = self._state.board
        return {token: None for token in tokens if token not in reported and not board.knows(token)}

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        timers = self._state.partitions[partition].timers
        return [key for key in keys if key not in timers]

    async def unread_s(self, partition: int) -> float:
        return 0.0

    async def unarchived(self, partition: int) -> int:
        return 0

    async def lose_tasks_of(self, judged: WorkerRecord) -> int:
        return self._state.board.lose_dead(judged)

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        before = self._clock.now() - waiting_s
        return self._state.board.reject(queue, error, issued_before=before, limit=limit)

    async def forget_queue(self, judged: QueueRecord) -> bool:
        """An empty queue is nothing here."""
        return True

    def _owned(self, lease: Lease) -> Partition:
        partition = self._state.partitions[lease.partition]
        partition.check(lease)
        return partition

    def _write_aggregates(self, commit: Commit) -> None:
        state = self._state
        for history in commit.histories:
            state.histories.setdefault(history.aggregate_id, []).append(history.entry)
        for aggregate_id in commit.closed:
            state.histories.pop(aggregate_id, None)
        for header in commit.headers:
            state.headers[header.execution_id] = header
        state.dead_letters.extend(commit.dead_letters)

    def _write_partition(self, partition: Partition, commit: Commit) -> None:
        partition.inbox.consume(commit.consumed)
        for key in commit.timers_cleared:
            partition.timers.clear(key)
        for timer in commit.timers_set:
            partition.timers.set(timer)
        # Issued first: a task that is issued and dropped by the same commit ends dropped.
        for task in commit.tasks:
            self._state.board.issue(partition.number, task)
        for token in commit.dropped:
            self._state.board.drop(token)


class MemoryMailbox:
    def __init__(self, state: MemoryState, blobs: BlobStore) -> None:
        self._state = state
        self._blobs = blobs

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> None:
        for key, data in blobs.items():
            await self._blobs.put(key, data)
        try:
            self._state.send(commands, of_stored=of_stored)
        except NotFoundError:
            for key in blobs:
                await self._blobs.delete(key)
            raise
