"""Partitions and their owners, in the memory of one process."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runnel.backends.feed_log import entries_of, pending_entries
from runnel.backends.local.feed import ChangeLog
from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.local.task_board import TaskBoard
from runnel.backends.local.tasks import LocalAttendance
from runnel.backends.matching import check_bounds, no_longer_stored
from runnel.core.commands import LIMIT_PREFIX, Command, CreateExecution
from runnel.core.effects import DeadLetter, TimerKey
from runnel.core.ids import DefinitionHash, ExecutionId, Token, root_of
from runnel.core.states import ExecutionState
from runnel.core.workflow import ErrorInfo
from runnel.errors import FencedError, LeaseHeldError, NotFoundError
from runnel.ports.archive import Definition
from runnel.ports.clock import Clock, Ids
from runnel.ports.records import BlobStore, Record
from runnel.ports.store import (
    NO_BLOBS,
    Commit,
    CommitLimits,
    Header,
    InboxEntry,
    Lease,
    LeaseRecord,
    TimerSet,
    pending_header,
)
from runnel.ports.workers import Attendance, QueueRecord, WorkerRecord

# All that a memory backend holds; one event loop changes it, between two awaits at a time.


@dataclass(slots=True, eq=False)
class Partition:
    number: int
    epoch: int = 0
    sequence: int = 0
    counter: int = 0
    lease: Lease | None = None
    inbox: LocalInbox = field(default_factory=LocalInbox)
    timers: LocalTimers = field(default_factory=LocalTimers)

    @property
    def record(self) -> LeaseRecord | None:
        if self.lease is None:
            return None
        return LeaseRecord(
            partition=self.number,
            owner=self.lease.owner,
            epoch=self.epoch,
            counter=self.counter,
        )

    def is_held_by(self, lease: Lease) -> bool:
        current = self.lease
        return current is not None and (current.epoch, current.nonce) == (lease.epoch, lease.nonce)

    def check(self, lease: Lease) -> None:
        """Raises FencedError unless this is the current lease."""
        if not self.is_held_by(lease):
            raise FencedError(
                self.number, held=f"epoch {lease.epoch}", current=f"epoch {self.epoch}"
            )


class MemoryState:
    def __init__(self, partitions: int, *, life: str = "") -> None:
        self.partitions = [Partition(number) for number in range(partitions)]
        self.board = TaskBoard(self.deliver)
        self.attendance = LocalAttendance()
        self.changes = ChangeLog(life)
        self.histories: dict[str, list[bytes]] = {}
        self.headers: dict[ExecutionId, Header] = {}
        self.definitions: dict[DefinitionHash, Definition] = {}
        self.dead_letters: list[DeadLetter] = []
        self.records: dict[tuple[str, str], Record] = {}
        self.revision = 0

    def route(self, aggregate_id: str) -> int:
        """The same in every process and version: a tree of children lives with its root."""
        is_limit = aggregate_id.startswith(LIMIT_PREFIX)
        key = aggregate_id if is_limit else root_of(ExecutionId(aggregate_id))
        return zlib.crc32(key.encode()) % len(self.partitions)

    def deliver(self, partition: int, command: Command) -> None:
        self.partitions[partition].inbox.put(command)

    def send(self, commands: Sequence[Command], *, of_stored: bool = False) -> None:
        """Raises NotFoundError as `Mailbox.send` does."""
        if of_stored:
            self._check_stored(commands)
        made: list[ExecutionId] = []
        for command in commands:
            if isinstance(command, CreateExecution) and command.execution_id not in self.headers:
                self.headers[command.execution_id] = pending_header(command)
                made.append(command.execution_id)
            self.deliver(self.route(command.aggregate_id), command)
        if made:
            self.changes.add(pending_entries(made))

    def _check_stored(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, CreateExecution):
                found = self.definitions.get(command.definition)
                if found is None or found.version < 0:
                    raise no_longer_stored(command)


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
