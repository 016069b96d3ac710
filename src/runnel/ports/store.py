"""The store port: leases, inboxes, commits, tasks and timers of each partition of running
executions.

One orchestrator owns a partition at a time and is its only writer. The owner writes the decisions
of a batch in one `commit`, which is atomic and fenced. The store refuses a commit unless epoch,
nonce and expected sequence are those of the current owner. Workers claim, start and report tasks;
they write nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
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


class LossKind(StrEnum):
    """How a task was lost: before its code began, or with its process, alone or with others."""

    NOT_STARTED = "not started"
    TOGETHER = "together"
    ALONE = "alone"


class CommitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The size limits of one commit.

    The orchestrator splits its batches to stay below these limits.
    """

    commands: int = 512
    writes: int = 2_000
    size_bytes: int = 1_000_000
    serializes_tasks: bool = True
    """Whether the store serializes tasks with their values.

    If False, the store keeps the task objects, and their size does not count towards `size_bytes`.
    """

    def check(self, commit: "Commit") -> None:
        """Raises CommitTooLargeError if the commit exceeds a limit.

        A store calls `check` before it writes anything.
        """
        if commit.writes > self.writes:
            raise CommitTooLargeError("writes", commit.writes, self.writes)
        if commit.size_bytes > self.size_bytes:
            raise CommitTooLargeError("bytes", commit.size_bytes, self.size_bytes)


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of a lease.

    Another process counts the owner as alive while `counter` changes.
    """

    partition: int
    owner: str
    epoch: int
    counter: int


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A submit by a program that runs no engine.

    `joins` is True for the names of the owners that run the execution at once. `source` is the
    folder that the functions of the program are imported from, or empty.
    """

    joins: Callable[[str], bool]
    source: str = ""


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

    If the message can't be read, `command` is None, `body` holds its bytes and `problem` the
    reason.
    """

    position: InboxPosition
    command: Command | None
    body: bytes = b""
    problem: str = ""


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The encoded events (one `codec` entry) that one commit appends to the history of one
    aggregate.
    """

    aggregate_id: str
    entry: bytes


class ExecutionHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an execution that lists and lookups show.

    A commit writes the header when a field changes.
    """

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
    """Returns the PENDING header of an execution whose creation the partition's owner has not read
    yet.
    """
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
    """All changes of one batch. The store writes all of them, or none.

    `dropped` are the tokens of tasks that must not run or no longer count. A queued task with such
    a token never starts, its worker stops a running one, and the store refuses its report. The
    store puts each of the `messages` into the inbox of the partition of its `aggregate_id`. A task
    that one commit issues and drops is dropped. A timer that one commit clears and sets is set.

    `stopped` are the tokens of tasks that must not run either, and whose end is reported. The store
    removes a queued task and puts TaskStopped into the inbox of this partition, in the same step.
    It keeps a claimed task with its worker until the worker reports TaskStopped or the task is
    lost.
    """

    sequence: int
    """The sequence of this commit: that of the last commit plus one."""
    consumed: InboxPosition | None = None
    histories: Sequence[HistoryRecord] = ()
    headers: Sequence[ExecutionHeader] = ()
    closed: Sequence[str] = ()
    """Aggregates whose history the store may delete, such as an unused concurrency key."""
    tasks: Sequence[TaskMessage] = ()
    dropped: Sequence[TaskToken] = ()
    stopped: Sequence[TaskToken] = ()
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
            + len(self.stopped)
            + len(self.timers_set)
            + len(self.timers_cleared)
            + len(self.messages)
            + len(self.dead_letters)
        )

    @property
    def size_bytes(self) -> int:
        """Returns the total size of the history entries and of the configs of tasks."""
        return sum([len(history.entry) for history in self.histories]) + sum(
            [len(task.config) for task in self.tasks]
        )


class Store(Protocol):
    """The orchestrator's interface to a store: partitions, leases, commits, inboxes and timers.

    A store that is a server, such as Redis, may restart after a crash with slightly older data. The
    store then raises FencedError for every lease that was acquired before the restart. The owner of
    such a lease may have read data that the store has lost.
    """

    limits: CommitLimits
    has_shared_failures: bool
    """Whether a failed store call may affect all partitions of this process.

    If True, the process gives up and reloads all its partitions after a failed call, instead of one
    partition.
    """

    async def partitions(self) -> Sequence[int]:
        """Returns all partitions that exist, owned or not."""

    async def partitions_with_work(self) -> Sequence[int]:
        """Returns the partitions that need an owner; a store may return all partitions.

        A partition needs an owner if it has a message or an execution that is not final.
        """

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        """Returns the partition of an execution or of a `limit:` key, also before it is created.

        `is_new` means that the id was generated just now, so the store does not look for an
        existing aggregate.
        """

    async def observe(self, partition: int) -> LeaseRecord | None:
        """Returns the lease of the partition, or None if no process holds one."""

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        """Acquires a partition that is free, or whose lease still equals `expected`.

        `expected` is the lease of an owner that the caller counts as dead. Raises LeaseHeldError if
        another process holds the partition. Raises PartitionUnavailableError, as `observe` does, if
        only this partition can't be used. The new lease has a higher epoch and a new nonce, so the
        store refuses every later commit of a former owner.
        """

    async def restore(self, lease: Lease) -> Lease:
        """Restores lost data of the partition from the archive. A new owner calls `restore` first.

        Returns the lease with the sequence after which its commits continue. A store that is its
        own archive returns the lease unchanged. Raises PartitionUnavailableError if the store may
        have lost data and the archive can't be reached.
        """

    async def renew(self, lease: Lease) -> None:
        """Increments the counter of the lease.

        Raises FencedError if `lease` is not the current lease.
        """

    async def release(self, lease: Lease) -> None:
        """Releases the partition. Does nothing if another process already owns the partition."""

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        """Records that the orchestrator is alive; returns all registered orchestrators."""

    async def unregister_orchestrator(self, owner: str, *, counter: int | None = None) -> None:
        """Removes the orchestrator from the list until its next heartbeat.

        Another process passes the `counter` that it has read. The store then removes the
        orchestrator only if it has sent no heartbeat since.
        """

    async def commit(self, lease: Lease, commit: Commit) -> None:
        """Writes all changes of the commit, or none.

        Raises FencedError if epoch, nonce or sequence are not the expected ones. Raises
        CommitTooLargeError if the commit exceeds `limits`. After any error the owner reloads the
        partition; it never sends a commit twice.
        """

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        """Returns the next unread entries of the inbox in order; waits at most `wait_s` for the
        first.

        The owner of a lease receives each entry once. A new lease starts after the last `consumed`
        entry. A cancelled call loses nothing: the next call returns the same entries.
        """

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerRecord]:
        """Returns the timers with `due <= now`, earliest first.

        A timer stays in the store until a commit clears it.
        """

    async def next_due(self, lease: Lease) -> float | None:
        """Returns the due time of the partition's earliest timer, or None if it has no timers."""

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        """Returns all history entries of an aggregate in order; an empty list if it has none."""

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        """Returns the history entries of each aggregate, as `load` does.

        A Redis backend needs one round trip.
        """

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        """Returns the RUNNING executions of the partition, oldest first.

        A new owner recovers these executions.
        """

    async def list_concurrency_keys(self, partition: int) -> Sequence[str]:
        """Returns the concurrency keys of the partition that have a history."""
        ...

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[TaskToken]
    ) -> Mapping[TaskToken, LossKind | None]:
        """Returns the given tokens whose task is neither queued nor claimed and has no unread
        report.

        The value of a token says whether its task may have killed the process that ran it. The
        value is None if the store can't tell.
        """

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        """Returns those of the given keys for which the partition has no timer."""

    async def unread_s(self, partition: int) -> float:
        """Returns how long the oldest entry of the inbox has been unread, on the store's clock.

        Returns 0 if the inbox is empty, or if the store does not record arrival times.
        """

    async def unarchived(self, partition: int) -> int:
        """Returns how many commits the archive lacks; 0 for a store that is its own archive."""

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        """Reports each task of a dead worker as TaskLost to its partition; returns how many.

        Does nothing and returns 0 if the worker has sent a heartbeat since `record` was read. If
        `record.is_crash` is False, no task counts as started, as with `leave`.
        """

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        """Fails tasks that have waited in the queue for at least `waiting_s`, oldest first.

        For each task, the removal and the TaskFailed report are one atomic step. Returns the number
        of failed tasks, at most `limit`.
        """

    async def forget_queue(self, record: QueueRecord) -> bool:
        """Deletes the record of an empty queue.

        Returns False if the queue has a task. The next task of the queue adds the record again.
        """


class Mailbox(Protocol):
    """The callers' interface to a store: stores commands in the inboxes of partitions."""

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Stores each command in the inbox of its aggregate's partition; returns when all are
        stored.

        As soon as a CreateExecution is stored, lookups and lists show its execution as PENDING.
        `blobs` are the large values of the commands, by key. The store writes the blobs and the
        commands in one step, so refused commands leave no blobs.

        With `requires_definition`, raises NotFoundError if a command creates an execution of a
        definition that is not stored or was deleted. In this case no command is stored: check and
        write are one step.
        """


class TaskQueue(Protocol):
    """The worker's interface to a store: claims, reports, heartbeats, rate limits, cached
    results.
    """

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        """Claims up to `limit` tasks, in turn from each queue; waits at most `wait_s` for the
        first.

        If `queues` is None, claims from all queues. Never returns a task that a commit has dropped.
        With `starts_tasks`, the same step also starts the claimed tasks, as `start` does.
        """

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        """Starts claimed tasks; returns False for each task that was dropped or stopped.

        Such a task must not run.
        """

    def begin(self, token: TaskToken) -> None:
        """Records that the code of a started task begins to run.

        A worker starts several tasks at once but may run them one after another. Only stores in the
        worker's own process record this: after a crash, the next process needs to know which tasks
        were running. Every other store does nothing. The call never blocks. Any thread of the
        worker's process may make the call.
        """

    def end(self, token: TaskToken) -> None:
        """Records that the code of a task has ended, if its report may follow only later.

        If the process dies before the report, this task was not the cause. The rules of `begin`
        apply.
        """

    async def isolate(self, worker: str, token: TaskToken) -> None:
        """Records that the code of a started task runs in a child process of the worker.

        If the worker dies, this task was not the cause. It then counts neither as started nor as
        company of the worker's other tasks.
        """

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        """Acknowledges each task and puts the report into its partition's inbox, in one step.

        Returns False for each report whose token this worker no longer holds. The store drops such
        a report. A TaskStarted report does not end the claim.
        """

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        """Records that the worker is alive and which tasks it holds; returns instructions for the
        worker.

        If two heartbeats do not list a task that this worker claimed, the task is lost: the reply
        to the claim never reached the worker.
        """

    async def drain(self, worker: str) -> bool:
        """Makes the reply to the worker's next heartbeat ask it to drain and stop.

        Returns False if the worker is not registered.
        """

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        """Returns tokens of this worker that a commit has dropped or stopped; waits for them at
        most `wait_s`.
        """

    async def leave(self, worker: str) -> None:
        """Unregisters the worker; every task that it still holds becomes TaskLost at once.

        Each TaskLost has `was_started` False, whether or not `start` was called. A worker that
        leaves was not killed by its tasks, so its lost tasks do not count towards a crash loop.
        """

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        """Returns every worker that has claimed a task or sent a heartbeat.

        The caller decides which of these workers are dead. Workers that left or that
        `lose_worker_tasks` removed are not listed. With `with_dead`, the result includes the last
        hundred workers that `lose_worker_tasks` removed, unless they have sent a heartbeat since.
        """

    async def queues(self) -> Sequence[QueueRecord]:
        """Returns every queue that has received a task, except those that `forget_queue` deleted,
        sorted by name.
        """

    async def get_cached_result(self, key: str) -> bytes | None:
        """Returns the result stored under this key, or None if it is missing or expired."""

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        """Stores a result for all workers and replaces an older one.

        The result expires after `ttl_s` on the store's clock.
        """

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        """Takes a rate token from the bucket that all workers share, on the store's clock.

        Returns the seconds to wait before the task may run. If that time is at most `wait_s_max`,
        the token is reserved. If it is longer, no token is taken.
        """
