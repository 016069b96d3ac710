"""The store's own process: it executes what reaches it, one operation at a time, and may be slow,
or come back from a crash as it was a while ago.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from runnel.backends.blob_files import MemoryBlobs
from runnel.backends.local.feed import LocalFeed
from runnel.backends.local.inbox import VOLATILE, LocalInbox, LocalTimers
from runnel.backends.local.tasks import LocalBuckets, LocalResults, LocalTasks, LocalWindows
from runnel.backends.memory.archive import MemoryArchive, MemoryRecords
from runnel.backends.memory.store import MemoryMailbox, MemoryState, MemoryStore
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command
from runnel.core.effects import Task
from runnel.core.ids import Token
from runnel.errors import BrokenInvariantError, FencedError
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import Commit, CommitLimits, InboxEntry, Lease, LeaseRecord, Position
from runnel.ports.workers import WorkerRecord

# The inbox of a partition as a stream: positions only grow, and the reader keeps its own place.


class Positions:
    """Shared by all copies of an inbox: a store that is set back does not reuse a position.

    Redis makes its stream ids of the time of day, to the same effect.
    """

    def __init__(self) -> None:
        self.next = 0


class StreamInbox(LocalInbox):
    """Entries stay until a commit has consumed them; each lease reads them all from there."""

    def __init__(self, positions: Positions | None = None) -> None:
        super().__init__()
        self.positions = positions or Positions()
        self.entries: list[InboxEntry] = []

    def copy(self) -> "StreamInbox":
        inbox = StreamInbox(self.positions)
        inbox.entries = list(self.entries)
        return inbox

    def after(self, position: Position | None, limit: int) -> Sequence[InboxEntry]:
        start = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) > start][:limit]

    def up_to(self, position: Position | None) -> list[InboxEntry]:
        """What consuming `position` takes away."""
        end = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) <= end]

    def rewind(self) -> None:
        self.arrived.set()

    def check(self, position: Position | None) -> None:
        if position is not None and int(position) >= self.positions.next:
            raise BrokenInvariantError(f"inbox position {position} was never given")

    def consume(self, position: Position | None) -> None:
        gone = len(self.up_to(position))
        del self.entries[:gone]

    def put(self, command: Command, row: int = VOLATILE) -> None:
        """Through the codec, as every message of a real store: what it does not keep is lost."""
        self.put_raw(encode_message(command), row)

    def reported(self) -> set[Token]:
        return {
            entry.command.token for entry in self.entries if isinstance(entry.command, TASK_ENDINGS)
        }

    def _next_position(self) -> Position:
        return Position(str(self.positions.next))

    def _append(self, entry: InboxEntry, row: int = VOLATILE) -> None:
        self.positions.next += 1
        self.entries.append(entry)
        self.arrived.set()


_encode = msgspec.json.Encoder().encode
_decode_task = msgspec.json.Decoder(Task).decode


class Watcher:
    """Is told what the store has done; what it raises ends the simulation."""

    def acquired(self, lease: Lease, *, over: LeaseRecord | None) -> None: ...

    def committed(self, lease: Lease, commit: Commit, consumed: Sequence[InboxEntry]) -> None: ...

    def refused(self, lease: Lease, commit: Commit) -> None: ...

    def started(self, worker: str, token: Token) -> None: ...

    def reported(self, worker: str, report: Command, *, is_taken: bool) -> None: ...

    def judged_dead(self, judged: WorkerRecord, *, sign: int, lost: int) -> None:
        """`lost` tasks were taken from the worker, whose last sign of life is `sign`."""

    def rated(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """A rate token was given out, for a task that may begin at `at`."""

    def restored(self) -> None: ...


class StreamStore(MemoryStore):
    """The memory store, read like a stream: the place up to which a reader has got is its own."""

    def __init__(
        self, state: MemoryState, watcher: Watcher, *, clock: Clock, ids: Ids, limits: CommitLimits
    ) -> None:
        super().__init__(state, clock=clock, ids=ids, limits=limits)
        self._watcher = watcher

    async def read_after(
        self, lease: Lease, after: Position | None, *, limit: int, wait_s: float
    ) -> Sequence[InboxEntry]:
        inbox = stream(self._state, self._owned(lease).number)
        if wait_s > 0 and not inbox.after(after, 1):
            inbox.arrived.clear()
            await self._clock.wait(inbox.arrived, wait_s)
            self._owned(lease)
        return inbox.after(after, limit)

    async def acquire(
        self, partition: int, owner: str, *, over: LeaseRecord | None = None
    ) -> Lease:
        lease = await super().acquire(partition, owner, over=over)
        self._watcher.acquired(lease, over=over)
        return lease

    async def lose_tasks_of(self, judged: WorkerRecord) -> int:
        signs = {each.worker: each.counter for each in self._state.board.records(0.0)}
        lost = await super().lose_tasks_of(judged)
        self._watcher.judged_dead(judged, sign=signs.get(judged.worker, 0), lost=lost)
        return lost

    async def commit(self, lease: Lease, commit: Commit) -> None:
        consumed = stream(self._state, lease.partition).up_to(commit.consumed)
        try:
            await super().commit(lease, commit)
        except FencedError:
            self._watcher.refused(lease, commit)
            raise
        self._watcher.committed(lease, commit, consumed)


class WatchedTasks(LocalTasks):
    """Tasks leave as bytes, as they do where workers are other processes."""

    watcher: Watcher

    async def start(self, worker: str, tokens: Sequence[Token], *, now: float) -> Sequence[bool]:
        answers = await super().start(worker, tokens, now=now)
        for token, is_wanted in zip(tokens, answers, strict=True):
            if is_wanted:
                self.watcher.started(worker, token)
        return answers

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts: bool = False,
    ) -> Sequence[Task]:
        tasks = await super().claim(worker, queues, limit=limit, wait_s=wait_s, starts=starts)
        for task in tasks if starts else ():
            self.watcher.started(worker, task.token)
        return [_decode_task(_encode(task)) for task in tasks]

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        answers = await super().report(worker, reports)
        for report, is_taken in zip(reports, answers, strict=True):
            self.watcher.reported(worker, report, is_taken=is_taken)
        return answers

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        wait_s = await super().take_token(
            tag, rate_per_second=rate_per_second, burst=burst, wait_s_max=wait_s_max
        )
        if wait_s <= wait_s_max:
            at = self._clock.monotonic() + wait_s
            self.watcher.rated(tag, at, rate_per_second=rate_per_second, burst=burst)
        return wait_s


class Machine:
    """The parts of the store over one state; another state means another machine."""

    def __init__(
        self,
        state: MemoryState,
        blobs: MemoryBlobs,
        watcher: Watcher,
        *,
        clock: Clock,
        ids: Ids,
        limits: CommitLimits,
    ) -> None:
        self.blobs = blobs
        self.store = StreamStore(state, watcher, clock=clock, ids=ids, limits=limits)
        self.mailbox = MemoryMailbox(state, blobs)
        buckets, results = LocalBuckets(clock), LocalResults(clock)
        self.tasks = WatchedTasks(state.board, clock, buckets.take, results)
        self.tasks.watcher = watcher
        self.archive = MemoryArchive(state)
        self.records = MemoryRecords(state)
        self.windows = LocalWindows(clock)
        self.feed = LocalFeed(state.changes, clock)


class Server:
    """`blobs`, definitions and records are safe: only what is hot can be set back."""

    def __init__(
        self, clock: Clock, ids: Ids, watcher: Watcher, *, partitions: int, limits: CommitLimits
    ) -> None:
        self.clock = clock
        self.watcher = watcher
        self.limits = limits
        self.blobs = MemoryBlobs()
        self.slow_until = 0.0
        self._ids = ids
        self._serving: dict[asyncio.Task[None], Callable[[], None]] = {}
        self.state = MemoryState(partitions)
        for partition in self.state.partitions:
            partition.inbox = StreamInbox()
        self.machine = self._machine()

    def _machine(self) -> Machine:
        return Machine(
            self.state,
            self.blobs,
            self.watcher,
            clock=self.clock,
            ids=self._ids,
            limits=self.limits,
        )

    def serve(self, work: Awaitable[None], on_lost: Callable[[], None]) -> "asyncio.Task[None]":
        """Runs `work` until it ends or the machine does; then `on_lost` is called."""

        async def body() -> None:
            await work

        task = asyncio.get_running_loop().create_task(body())
        self._serving[task] = on_lost
        task.add_done_callback(lambda done: self._serving.pop(done, None))
        return task

    def snapshot(self) -> MemoryState:
        return copy_state(self.state)

    def has_moved_since(self, earlier: MemoryState) -> bool:
        """Whether going back to it would lose a commit or a message."""
        return any(
            now.sequence != then.sequence
            or stream(self.state, now.number).entries != stream(earlier, now.number).entries
            for now, then in zip(self.state.partitions, earlier.partitions, strict=True)
        )

    def restore(self, earlier: MemoryState) -> None:
        """The machine died and came back as it was: every connection is lost."""
        earlier.definitions = self.state.definitions
        earlier.records, earlier.revision = self.state.records, self.state.revision
        self.void_leases(earlier)
        self.state = earlier
        self.machine = self._machine()
        serving, self._serving = self._serving, {}
        for task, on_lost in serving.items():
            task.cancel()
            on_lost()
        self.watcher.restored()

    def void_leases(self, state: MemoryState) -> None:
        """Nobody owns anything any more, though the records stay until they are judged dead."""
        for partition in state.partitions:
            if partition.lease is not None:
                nobody = self._ids.nonce()
                partition.lease = msgspec.structs.replace(partition.lease, nonce=nobody)


def stream(state: MemoryState, partition: int) -> StreamInbox:
    inbox = state.partitions[partition].inbox
    if not isinstance(inbox, StreamInbox):
        raise TypeError("a simulated store has stream inboxes")
    return inbox


def copy_state(state: MemoryState) -> MemoryState:
    copied = MemoryState(0)
    copied.partitions = [
        replace(
            found, inbox=stream(state, found.number).copy(), timers=LocalTimers(found.timers.all())
        )
        for found in state.partitions
    ]
    copied.board = state.board.copy(copied.deliver)
    copied.histories = {id_: list(entries) for id_, entries in state.histories.items()}
    copied.headers = dict(state.headers)
    copied.attendance = state.attendance.copy()
    copied.changes = state.changes.copy()
    copied.dead_letters = list(state.dead_letters)
    return copied
