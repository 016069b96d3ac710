"""The hot side of a backend: leases, inboxes, commits, tasks and timers of each partition.

One orchestrator owns a partition at a time and is its only writer. It writes all its decisions in
one `commit`, which is atomic and fenced. The store refuses a commit unless epoch, nonce and
expected sequence are those of the current owner. Workers claim, start and report tasks; they write
nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import NewType, Protocol

import msgspec

from runnel.core.commands import Command, CreateExecution
from runnel.core.effects import DeadLetter, TaskMessage, TimerKey
from runnel.core.ids import ExecutionId, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.errors import CommitTooLargeError
from runnel.ports.workers import (
    HeartbeatReply,
    OrchestratorRecord,
    QueueRecord,
    WorkerInfo,
    WorkerRecord,
)

InboxPosition = NewType("InboxPosition", str)

NO_BLOBS: Mapping[str, bytes] = {}


class CommitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one commit may hold. The orchestrator splits its batches accordingly."""

    commands: int = 512
    writes: int = 2_000
    size_bytes: int = 1_000_000
    serializes_tasks: bool = True
    """Whether the store serializes tasks with their values.

    Otherwise it keeps the objects, whose size then does not count.
    """

    def check(self, commit: "Commit") -> None:
        """Raises CommitTooLargeError. A store calls it before it writes anything."""
        if commit.writes > self.writes:
            raise CommitTooLargeError("writes", commit.writes, self.writes)
        if commit.size_bytes > self.size_bytes:
            raise CommitTooLargeError("bytes", commit.size_bytes, self.size_bytes)


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as an observer sees it: alive while `counter` changes on the observer's own clock."""

    partition: int
    owner: str
    epoch: int
    counter: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write a partition, until another process acquires it at a higher epoch."""

    partition: int
    owner: str
    epoch: int
    nonce: str
    sequence: int
    """The sequence of the last commit when the lease was acquired."""


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message in an inbox.

    `command` is None if it can't be read; `body` and `problem` say why.
    """

    position: InboxPosition
    command: Command | None
    body: bytes = b""
    problem: str = ""


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Encoded events (one `codec` entry) of one aggregate, appended by one commit."""

    aggregate_id: str
    entry: bytes


class ExecutionHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an execution that lists and lookups need; written when one of them changes."""

    execution_id: ExecutionId
    workflow: str
    version: int
    definition: str
    state: ExecutionState
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    parent_id: ExecutionId | None = None
    labels: dict[str, str] = {}
    error: str | None = None
    rerun_of: ExecutionId | None = None


def make_pending_header(command: CreateExecution) -> ExecutionHeader:
    """Returns the header of an execution that the partition's owner has not read yet."""
    return ExecutionHeader(
        execution_id=command.execution_id,
        workflow=command.workflow,
        version=command.version,
        definition=command.definition,
        state=ExecutionState.PENDING,
        created_at=command.created_at,
        parent_id=command.parent.execution_id if command.parent else None,
        labels=command.labels,
        rerun_of=command.rerun_of,
    )


class TimerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    key: TimerKey
    due: float
    attempt: int = 0


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one batch changes: written together, or not at all.

    `dropped` tokens are superseded or finished. Their queued tasks never start, their workers stop
    the running ones, and the store refuses a report with such a token. `messages` go to the inbox
    of the partition of the aggregate that they name (`aggregate_id`). A task that one commit issues
    and drops is dropped. A timer that one commit clears and sets is set.
    """

    sequence: int
    """The expected sequence: that of the last commit plus one."""
    consumed: InboxPosition | None = None
    histories: Sequence[HistoryRecord] = ()
    headers: Sequence[ExecutionHeader] = ()
    closed: Sequence[str] = ()
    """Aggregates that hold nothing any more, such as an unused concurrency key.

    Their history may be forgotten.
    """
    tasks: Sequence[TaskMessage] = ()
    dropped: Sequence[TaskToken] = ()
    timers_set: Sequence[TimerRecord] = ()
    timers_cleared: Sequence[TimerKey] = ()
    messages: Sequence[Command] = ()
    dead_letters: Sequence[DeadLetter] = ()

    @property
    def writes(self) -> int:
        return (
            len(self.histories)
            + len(self.headers)
            + len(self.closed)
            + len(self.tasks)
            + len(self.dropped)
            + len(self.timers_set)
            + len(self.timers_cleared)
            + len(self.messages)
            + len(self.dead_letters)
        )

    @property
    def size_bytes(self) -> int:
        """Returns the size of the variable part: history entries and the inline values of tasks."""
        return sum(len(history.entry) for history in self.histories) + sum(
            len(task.config) for task in self.tasks
        )


class Store(Protocol):
    """Partitions and their owners.

    A store in a process of its own may restart after a crash with slightly older data. No lease
    survives such a restart: the store raises FencedError for every lease acquired before it. The
    owner of such a lease has read, or waits for, data that the store has lost.
    """

    limits: CommitLimits
    has_shared_failures: bool
    """Whether a failed call may have affected all partitions of this process.

    If so, the process gives up and reloads all of them, not only the one whose call failed.
    """

    async def partitions(self) -> Sequence[int]:
        """Returns all partitions that exist, owned or not."""

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        """Returns the partition of an execution or of a `limit:` key, also before it is created.

        With `is_new` the id was generated just now, so the store does not search for it.
        """

    async def observe(self, partition: int) -> LeaseRecord | None:
        """Returns None if no process holds the partition: it can be acquired at once."""

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        """Acquires a free partition, or one whose lease still equals `expected` (judged dead).

        Raises LeaseHeldError otherwise. Like `observe`, raises PartitionUnavailableError if this
        partition can't be used while others can. The epoch grows and the nonce is new, so the store
        refuses every later commit of a former owner.
        """

    async def restore(self, lease: Lease) -> Lease:
        """Restores lost data from the archive; a new owner calls it first.

        Returns the lease with the sequence after which its commits continue. A store that is its
        own archive returns the lease unchanged. Raises PartitionUnavailableError if the store may
        have lost data and the archive can't be reached.
        """

    async def renew(self, lease: Lease) -> None:
        """Moves the counter of the lease. Raises FencedError if it is not the current lease."""

    async def release(self, lease: Lease) -> None:
        """Gives the partition back. Does nothing if another process already owns it."""

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        """Records that the orchestrator is alive; returns all orchestrators that have not
        unregistered.
        """

    async def unregister_orchestrator(self, owner: str, *, counter: int | None = None) -> None:
        """Removes the orchestrator from the list until its next heartbeat.

        With `counter` another process removes it. Then nothing happens unless `counter` is that of
        its last heartbeat.
        """

    async def commit(self, lease: Lease, commit: Commit) -> None:
        """Writes all of it, or nothing.

        Raises FencedError if epoch, nonce or sequence are not the expected ones, and
        CommitTooLargeError over `limits`. After any error the owner reloads; it never sends a
        commit twice.
        """

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        """Returns the next unread entries in order; waits at most `wait_s` for the first.

        A lease reads each entry once. A new lease starts after the last `consumed` entry. A
        cancelled call loses nothing: the next call returns the same entries.
        """

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerRecord]:
        """Returns timers with `due <= now`, earliest first.

        They stay until a commit clears them.
        """

    async def next_due(self, lease: Lease) -> float | None:
        """Returns the due time of the partition's earliest timer, or None without timers."""

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        """Returns all history entries of an aggregate in order; empty if it has none."""

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        """Returns the result of `load` for each id. Backends on a network use one round trip."""

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        """Returns the RUNNING executions of the partition, oldest first; a new owner
        recovers them.
        """

    async def list_concurrency_keys(self, partition: int) -> Sequence[str]:
        """Returns the concurrency keys of the partition that have a history."""
        ...

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[TaskToken]
    ) -> Mapping[TaskToken, bool | None]:
        """Returns the tokens that are neither queued nor claimed and have no unread report.

        The value is True if the task may have killed the process that ran it, and False if it has
        not. It is None if the store knows no more than the history.
        """

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        """Returns the keys for which no timer is set."""

    async def unread_s(self, partition: int) -> float:
        """Returns how long the oldest entry of the inbox has been unread, on the store's clock.

        0 if the inbox is empty, or if the store does not record arrival times.
        """

    async def unarchived(self, partition: int) -> int:
        """Returns how many commits the archive lacks; 0 for a store that is its own archive."""

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        """Reports each task of a dead worker as TaskLost to its partition; returns how many.

        Returns 0 if the worker's record no longer equals `record`: it has sent a heartbeat since.
        Unless `record.is_crash`, no task counts as started, as with `leave`.
        """

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        """Fails tasks that have waited in the queue for at least `waiting_s`, oldest first.

        Removes each task and reports it as TaskFailed in one step. Returns how many, at most
        `limit`.
        """

    async def forget_queue(self, record: QueueRecord) -> bool:
        """Removes the record of an empty queue. False if a task has arrived since."""


class Mailbox(Protocol):
    """Accepts commands from callers for the owners of partitions."""

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Stores each command in the inbox of its aggregate's partition; returns when all are
        stored.

        An execution that a CreateExecution creates can be found and listed (PENDING) from then on.
        `blobs` are the large values of the commands, by key. They exist as soon as a command does,
        and refused commands leave no blobs.

        With `requires_definition`, raises NotFoundError if a command creates an execution of a
        definition that is not stored or was deleted. Nothing is stored then: check and write are
        one step.
        """


class TaskQueue(Protocol):
    """The worker's side of a store."""

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        """Claims up to `limit` tasks, fair over the queues (None: all); waits for the first.

        Tasks that were dropped before are never delivered. With `starts_tasks` the same step starts
        them, as a call of `start` with all of them would.
        """

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        """Checks tasks before they run: False for each claimed task that was dropped and must not
        run.
        """

    def begin(self, token: TaskToken) -> None:
        """Records that the code of a started task begins, possibly after others started with it.

        Only stores in the worker's own process use it: after a crash, the next process needs to
        know which tasks were running. In any other store it does nothing. It never blocks.
        """

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        """Acknowledges each task and puts the report into its partition's inbox, in one step.

        False if this worker no longer holds the token; the report was dropped. TaskStarted does not
        end the claim.
        """

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        """Records that the worker is alive and which tasks it holds; returns its instructions.

        A task that this worker claimed and that two heartbeats do not list in `holds` is lost: the
        reply to its claim never arrived.
        """

    async def drain(self, worker: str) -> bool:
        """Asks the worker, by its next heartbeat, to finish and stop. False if it is not listed."""

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        """Returns tokens of this worker that a commit has dropped, as soon as there are any."""

    async def leave(self, worker: str) -> None:
        """Unregisters the worker; every task that it still holds becomes TaskLost at once.

        `was_started` is False in each, whether or not `start` was called. A worker that leaves was
        not killed by its tasks, so this does not count towards a crash loop.
        """

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        """Returns every worker that has claimed or sent a heartbeat; observers judge which are
        dead.

        A worker that left, or whose tasks `lose_worker_tasks` has lost, is no longer listed. With
        `with_dead` the last hundred of the latter are listed too, unless they have come back.
        """

    async def queues(self) -> Sequence[QueueRecord]:
        """Returns, sorted by name, the queues that hold or held a task and were not forgotten."""

    async def get_cached_result(self, key: str) -> bytes | None:
        """Returns the result stored under this key, or None if it is missing or expired."""

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        """Stores a result for all workers, replacing an older one; `ttl_s` is on the
        store's clock.
        """

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        """Takes a rate token from the bucket that all workers share, on the store's clock.

        Returns the seconds to wait before the task may run. The token is reserved if that is at
        most `wait_s_max`; otherwise no token is taken.
        """
