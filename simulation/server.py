"""The simulated store. It executes one operation at a time, may be slow, and can be rolled back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from runnel.backends.blob_files import MemoryBlobs
from runnel.backends.local.feed import LocalFeed
from runnel.backends.local.inbox import NO_ROW, LocalInbox, LocalTimers
from runnel.backends.local.tasks import (
    LocalRequestWindows,
    LocalResultCache,
    LocalTaskQueue,
    LocalTokenBuckets,
)
from runnel.backends.memory.archive import MemoryArchive, MemoryRecords
from runnel.backends.memory.store import MemoryMailbox, MemoryState, MemoryStore
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.errors import BrokenInvariantError, FencedError
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.store import Commit, CommitLimits, InboxEntry, InboxPosition, Lease, LeaseRecord
from runnel.ports.workers import WorkerRecord

# The inbox of a partition as a stream. Positions only grow, and the reader keeps its own position.


class PositionCounter:
    """Counts the positions of an inbox.

    All copies of an inbox share one counter, so a position is never used again after a rollback.
    The stream ids of Redis contain the time of day, which has the same effect.
    """

    def __init__(self) -> None:
        self.next = 0


class StreamInbox(LocalInbox):
    """An inbox that keeps entries until a commit consumes them.

    The owner of each new lease reads all of them.
    """

    def __init__(self, positions: PositionCounter | None = None) -> None:
        super().__init__()
        self.positions = positions or PositionCounter()
        self.entries: list[InboxEntry] = []

    def copy(self) -> "StreamInbox":
        inbox = StreamInbox(self.positions)
        inbox.entries = list(self.entries)
        return inbox

    def read_after(self, position: InboxPosition | None, limit: int) -> Sequence[InboxEntry]:
        start = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) > start][:limit]

    def read_up_to(self, position: InboxPosition | None) -> list[InboxEntry]:
        """Returns the entries that a commit removes when it consumes `position`."""
        end = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) <= end]

    def rewind(self) -> None:
        self.arrived.set()

    def check_read(self, position: InboxPosition | None) -> None:
        if position is not None and int(position) >= self.positions.next:
            raise BrokenInvariantError(f"inbox position {position} was never assigned")

    def consume(self, position: InboxPosition | None) -> None:
        consumed_count = len(self.read_up_to(position))
        del self.entries[:consumed_count]

    def put(self, command: Command, row: int = NO_ROW) -> None:
        """Adds an encoded and decoded copy of the command, so that fields that are not stored are
        lost.
        """
        self.put_raw(encode_message(command), row)

    def list_reported_tokens(self) -> set[TaskToken]:
        return {
            entry.command.token for entry in self.entries if isinstance(entry.command, TASK_ENDINGS)
        }

    def _next_position(self) -> InboxPosition:
        return InboxPosition(str(self.positions.next))

    def _append(self, entry: InboxEntry, row: int = NO_ROW) -> None:
        self.positions.next += 1
        self.entries.append(entry)
        self.arrived.set()


_encode = msgspec.json.Encoder().encode
_decode_task = msgspec.json.Decoder(TaskMessage).decode


class StoreObserver:
    """An observer that the store notifies of every action.

    An error that the observer raises ends the simulation.
    """

    def on_lease_acquired(self, lease: Lease, *, expected: LeaseRecord | None) -> None: ...

    def on_commit(self, lease: Lease, commit: Commit, consumed: Sequence[InboxEntry]) -> None: ...

    def on_commit_refused(self, lease: Lease, commit: Commit) -> None: ...

    def on_task_started(self, worker: str, token: TaskToken) -> None: ...

    def on_task_reported(self, worker: str, report: Command, *, is_accepted: bool) -> None: ...

    def on_worker_declared_dead(
        self, record: WorkerRecord, *, counter: int, lost_count: int
    ) -> None:
        """Runs after the store took `lost_count` tasks from the worker with the heartbeat
        `counter`.
        """

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """Runs after the store issued a rate token for a task that may start at `at`."""

    def on_restored(self) -> None: ...


class StreamStore(MemoryStore):
    """The memory store with stream inboxes: each reader keeps its own position."""

    def __init__(
        self,
        state: MemoryState,
        observer: StoreObserver,
        *,
        clock: Clock,
        ids: IdGenerator,
        limits: CommitLimits,
    ) -> None:
        super().__init__(state, clock=clock, ids=ids, limits=limits)
        self._observer = observer

    async def read_after(
        self, lease: Lease, after: InboxPosition | None, *, limit: int, wait_s: float
    ) -> Sequence[InboxEntry]:
        inbox = get_stream_inbox(self._state, self._get_owned(lease).number)
        if wait_s > 0 and not inbox.read_after(after, 1):
            inbox.arrived.clear()
            await self._clock.wait(inbox.arrived, wait_s)
            self._get_owned(lease)
        return inbox.read_after(after, limit)

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        lease = await super().acquire(partition, owner, expected=expected)
        self._observer.on_lease_acquired(lease, expected=expected)
        return lease

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        counters = {worker.worker: worker.counter for worker in self._state.board.list_workers(0.0)}
        lost = await super().lose_worker_tasks(record)
        self._observer.on_worker_declared_dead(
            record, counter=counters.get(record.worker, 0), lost_count=lost
        )
        return lost

    async def commit(self, lease: Lease, commit: Commit) -> None:
        consumed = get_stream_inbox(self._state, lease.partition).read_up_to(commit.consumed)
        try:
            await super().commit(lease, commit)
        except FencedError:
            self._observer.on_commit_refused(lease, commit)
            raise
        self._observer.on_commit(lease, commit, consumed)


class ObservedTasks(LocalTaskQueue):
    """A task queue that encodes tasks, as for workers in other processes, and notifies the
    observer.
    """

    observer: StoreObserver

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        answers = await super().start(worker, tokens, now=now)
        for token, is_current in zip(tokens, answers, strict=True):
            if is_current:
                self.observer.on_task_started(worker, token)
        return answers

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        tasks = await super().claim(
            worker, queues, limit=limit, wait_s=wait_s, starts_tasks=starts_tasks
        )
        for task in tasks if starts_tasks else ():
            self.observer.on_task_started(worker, task.token)
        return [_decode_task(_encode(task)) for task in tasks]

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        answers = await super().report(worker, reports)
        for report, is_accepted in zip(reports, answers, strict=True):
            self.observer.on_task_reported(worker, report, is_accepted=is_accepted)
        return answers

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        wait_s = await super().take_token(
            tag, rate_per_second=rate_per_second, burst=burst, wait_s_max=wait_s_max
        )
        if wait_s <= wait_s_max:
            at = self._clock.monotonic() + wait_s
            self.observer.on_rate_token(tag, at, rate_per_second=rate_per_second, burst=burst)
        return wait_s


class StoreInstance:
    """The ports of the store for one state. A rollback creates a new instance."""

    def __init__(
        self,
        state: MemoryState,
        blobs: MemoryBlobs,
        observer: StoreObserver,
        *,
        clock: Clock,
        ids: IdGenerator,
        limits: CommitLimits,
    ) -> None:
        self.blobs = blobs
        self.store = StreamStore(state, observer, clock=clock, ids=ids, limits=limits)
        self.mailbox = MemoryMailbox(state, blobs)
        buckets, results = LocalTokenBuckets(clock), LocalResultCache(clock)
        self.tasks = ObservedTasks(state.board, clock, buckets.take, results)
        self.tasks.observer = observer
        self.archive = MemoryArchive(state)
        self.records = MemoryRecords(state)
        self.windows = LocalRequestWindows(clock)
        self.feed = LocalFeed(state.change_log, clock)


class SimulatedServer:
    """The store of a simulation. A rollback keeps blobs, definitions and records."""

    def __init__(
        self,
        clock: Clock,
        ids: IdGenerator,
        observer: StoreObserver,
        *,
        partitions: int,
        limits: CommitLimits,
    ) -> None:
        self.clock = clock
        self.observer = observer
        self.limits = limits
        self.blobs = MemoryBlobs()
        self.slow_until = 0.0
        self._ids = ids
        self._serving: dict[asyncio.Task[None], Callable[[], None]] = {}
        self.state = MemoryState(partitions)
        for partition in self.state.partitions:
            partition.inbox = StreamInbox()
        self.instance = self._create_instance()

    def _create_instance(self) -> StoreInstance:
        return StoreInstance(
            self.state,
            self.blobs,
            self.observer,
            clock=self.clock,
            ids=self._ids,
            limits=self.limits,
        )

    def serve(self, work: Awaitable[None], on_lost: Callable[[], None]) -> "asyncio.Task[None]":
        """Runs `work` as an asyncio task.

        Calls `on_lost` if the store is rolled back before `work` is done.
        """

        async def body() -> None:
            await work

        task = asyncio.get_running_loop().create_task(body())
        self._serving[task] = on_lost
        task.add_done_callback(lambda done: self._serving.pop(done, None))
        return task

    def snapshot(self) -> MemoryState:
        return copy_state(self.state)

    def has_changed_since(self, earlier: MemoryState) -> bool:
        """Returns True if a rollback to `earlier` would lose a commit or a message."""
        return any(
            current.sequence != former.sequence
            or get_stream_inbox(self.state, current.number).entries
            != get_stream_inbox(earlier, current.number).entries
            for current, former in zip(self.state.partitions, earlier.partitions, strict=True)
        )

    def restore(self, earlier: MemoryState) -> None:
        """Replaces the state with `earlier` and drops every connection."""
        earlier.definitions = self.state.definitions
        earlier.records, earlier.revision = self.state.records, self.state.revision
        self.void_leases(earlier)
        self.state = earlier
        self.instance = self._create_instance()
        serving, self._serving = self._serving, {}
        for task, on_lost in serving.items():
            task.cancel()
            on_lost()
        self.observer.on_restored()

    def void_leases(self, state: MemoryState) -> None:
        """Invalidates all leases.

        The records of the leases stay until their owners are declared dead.
        """
        for partition in state.partitions:
            if partition.lease is not None:
                nonce = self._ids.nonce()
                partition.lease = msgspec.structs.replace(partition.lease, nonce=nonce)


def get_stream_inbox(state: MemoryState, partition: int) -> StreamInbox:
    inbox = state.partitions[partition].inbox
    if not isinstance(inbox, StreamInbox):
        raise TypeError("a simulated store has stream inboxes")
    return inbox


def copy_state(state: MemoryState) -> MemoryState:
    copied = MemoryState(0)
    copied.partitions = [
        replace(
            partition,
            inbox=get_stream_inbox(state, partition.number).copy(),
            timers=LocalTimers(partition.timers.all()),
        )
        for partition in state.partitions
    ]
    copied.board = state.board.copy(copied.deliver)
    copied.histories = {id_: list(entries) for id_, entries in state.histories.items()}
    copied.headers = dict(state.headers)
    copied.membership = state.membership.copy()
    copied.change_log = state.change_log.copy()
    copied.dead_letters = list(state.dead_letters)
    return copied
