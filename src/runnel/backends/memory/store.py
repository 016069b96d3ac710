"""Partitions, leases, commits and the mailbox, in the memory of one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runnel.backends.feed_log import build_commit_entries, build_pending_entries
from runnel.backends.local.feed import ChangeLog
from runnel.backends.local.inbox import LocalInbox, LocalTimers
from runnel.backends.local.task_board import TaskBoard
from runnel.backends.local.tasks import LocalMembership, LocalStore
from runnel.backends.mailboxes import build_definition_deleted_error, route_by_hash
from runnel.core.commands import LIMIT_PREFIX, Command, CreateExecution
from runnel.core.effects import DeadLetter, TimerKey
from runnel.core.ids import DefinitionHash, ExecutionId, TaskToken
from runnel.core.states import ExecutionState
from runnel.errors import FencedError, LeaseHeldError, NotFoundError
from runnel.ports.archive import Definition
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.records import BlobStore, Record
from runnel.ports.store import (
    NO_BLOBS,
    Commit,
    CommitLimits,
    ExecutionHeader,
    InboxEntry,
    Lease,
    LeaseRecord,
    LossKind,
    TimerRecord,
    make_pending_header,
)

# -- state: only one event loop changes the state, and never across an await --------------------


@dataclass(slots=True, eq=False)
class MemoryPartition:
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

    def check_lease(self, lease: Lease) -> None:
        """Raises FencedError unless `lease` is the current lease of the partition."""
        if not self.is_held_by(lease):
            raise FencedError(
                self.number, held=f"epoch {lease.epoch}", current=f"epoch {self.epoch}"
            )


class MemoryState:
    def __init__(self, partitions: int, *, incarnation: str = "") -> None:
        self.partitions = [MemoryPartition(number) for number in range(partitions)]
        self.board = TaskBoard(self.deliver)
        self.membership = LocalMembership()
        self.change_log = ChangeLog(incarnation)
        self.histories: dict[str, list[bytes]] = {}
        self.headers: dict[ExecutionId, ExecutionHeader] = {}
        self.definitions: dict[DefinitionHash, Definition] = {}
        self.dead_letters: list[DeadLetter] = []
        self.records: dict[tuple[str, str], Record] = {}
        self.revision = 0

    def route(self, aggregate_id: str) -> int:
        return route_by_hash(aggregate_id, len(self.partitions))

    def deliver(self, partition: int, command: Command) -> None:
        self.partitions[partition].inbox.put(command)

    def send(self, commands: Sequence[Command], *, requires_definition: bool = False) -> None:
        """Puts the commands into the inboxes; raises NotFoundError as `Mailbox.send` does."""
        if requires_definition:
            self._check_definitions_stored(commands)
        created_ids: list[ExecutionId] = []
        for command in commands:
            if isinstance(command, CreateExecution) and command.execution_id not in self.headers:
                self.headers[command.execution_id] = make_pending_header(command)
                created_ids.append(command.execution_id)
            self.deliver(self.route(command.aggregate_id), command)
        if created_ids:
            self.change_log.add(build_pending_entries(created_ids))

    def _check_definitions_stored(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, CreateExecution):
                definition = self.definitions.get(command.definition)
                if definition is None or definition.version < 0:
                    raise build_definition_deleted_error(command)


class MemoryStore(LocalStore):
    has_shared_failures = False

    def __init__(
        self, state: MemoryState, *, clock: Clock, ids: IdGenerator, limits: CommitLimits
    ) -> None:
        super().__init__(state, clock)
        self.limits = limits
        self._state = state
        self._ids = ids

    async def partitions(self) -> Sequence[int]:
        return range(len(self._state.partitions))

    async def partitions_with_work(self) -> Sequence[int]:
        return await self.partitions()

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._state.route(aggregate_id)

    async def observe(self, partition: int) -> LeaseRecord | None:
        return self._state.partitions[partition].record

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        state = self._state.partitions[partition]
        if state.lease is not None and state.record != expected:
            raise LeaseHeldError(partition, state.lease.owner)
        state.epoch += 1
        state.lease = Lease(
            partition=partition,
            owner=owner,
            epoch=state.epoch,
            nonce=self._ids.nonce(),
            sequence=state.sequence,
        )
        state.inbox.rewind()
        return state.lease

    async def renew(self, lease: Lease) -> None:
        self._get_owned(lease).counter += 1

    async def release(self, lease: Lease) -> None:
        state = self._state.partitions[lease.partition]
        if state.is_held_by(lease):
            state.lease = None
            state.inbox.arrived.set()

    async def commit(self, lease: Lease, commit: Commit) -> None:
        partition = self._get_owned(lease)
        if commit.sequence != partition.sequence + 1:
            raise FencedError(
                partition.number,
                held=f"sequence {commit.sequence - 1}",
                current=f"sequence {partition.sequence}",
            )
        self.limits.check(commit)
        partition.inbox.check_read(commit.consumed)
        # Nothing below can fail, so the commit is atomic.
        partition.sequence = commit.sequence
        self._write_aggregates(commit)
        self._write_partition(partition, commit)
        self._state.change_log.add(build_commit_entries(commit))
        self._state.send(commit.messages)

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        inbox = self._get_owned(lease).inbox
        if wait_s <= 0:
            return inbox.take(limit)
        if not inbox.has_unread:
            inbox.arrived.clear()
            await self._clock.wait(inbox.arrived, wait_s)
        return await self._get_owned(lease).inbox.take_batch(limit)

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerRecord]:
        return self._get_owned(lease).timers.due(now, limit=limit)

    async def next_due(self, lease: Lease) -> float | None:
        return self._get_owned(lease).timers.next_due()

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        return tuple(self._state.histories.get(aggregate_id, ()))

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        return [await self.load(aggregate_id) for aggregate_id in aggregate_ids]

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        headers = [
            header
            for header in self._state.headers.values()
            if header.state is ExecutionState.RUNNING
            and self._state.route(header.execution_id) == partition
        ]
        headers.sort(key=lambda header: (header.created_at, header.execution_id))
        return [header.execution_id for header in headers]

    async def list_concurrency_keys(self, partition: int) -> Sequence[str]:
        return [
            id_.removeprefix(LIMIT_PREFIX)
            for id_ in self._state.histories
            if id_.startswith(LIMIT_PREFIX) and self._state.route(id_) == partition
        ]

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[TaskToken]
    ) -> Mapping[TaskToken, LossKind | None]:
        reported = self._state.partitions[partition].inbox.list_reported_tokens()
        board = self._state.board
        return {
            token: None for token in tokens if token not in reported and not board.has_task(token)
        }

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        timers = self._state.partitions[partition].timers
        return [key for key in keys if key not in timers]

    def _get_owned(self, lease: Lease) -> MemoryPartition:
        partition = self._state.partitions[lease.partition]
        partition.check_lease(lease)
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

    def _write_partition(self, partition: MemoryPartition, commit: Commit) -> None:
        partition.inbox.consume(commit.consumed)
        for key in commit.timers_cleared:
            partition.timers.clear(key)
        for timer in commit.timers_set:
            partition.timers.set(timer)
        # Tasks are issued first: a task that the same commit issues and drops must end dropped.
        for task in commit.tasks:
            self._state.board.issue(partition.number, task)
        for token in commit.dropped:
            self._state.board.drop(token)
        for token in commit.stopped:
            self._state.board.stop(token)


class MemoryMailbox:
    def __init__(self, state: MemoryState, blobs: BlobStore) -> None:
        self._state = state
        self._blobs = blobs

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        for key, data in blobs.items():
            await self._blobs.put(key, data)
        try:
            self._state.send(commands, requires_definition=requires_definition)
        except NotFoundError:
            for key in blobs:
                await self._blobs.delete(key)
            raise
