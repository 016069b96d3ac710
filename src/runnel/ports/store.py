"""The hot side of a backend: leases, inboxes, commits, tasks and timers of each partition.

One orchestrator owns a partition at a time and is its only writer. Everything it decides leaves
in one `commit`, which is atomic and fenced: the store refuses it unless epoch, nonce and expected
sequence are those of the current owner. Workers claim, start and report; they write nothing else.
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
    """What one commit may hold at most; the orchestrator cuts its batches to this."""

    commands: int = 512
    writes: int = 2_000
    size_bytes: int = 1_000_000
    serializes_tasks: bool = True
    """With all that they carry; otherwise they are handed over as they are, whatever their size."""

    def check(self, commit: "Commit") -> None:
        """Raises CommitTooLargeError; a store calls it before it writes anything."""
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
    """The right to write a partition, until somebody else acquires it at a higher epoch."""

    partition: int
    owner: str
    epoch: int
    nonce: str
    sequence: int
    """The sequence of the last commit when the lease was acquired."""


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`command` is None when the message can't be read: `body` and `problem` say why."""

    position: InboxPosition
    command: Command | None
    body: bytes = b""
    problem: str = ""


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Encoded events (one `codec` entry) of one aggregate, appended by one commit."""

    aggregate_id: str
    entry: bytes


class ExecutionHeader(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What lists and look-ups need of an execution; written when one of its fields changes."""

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
    """How an execution is listed before its partition's owner has seen it."""
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

    `dropped` tokens are superseded or over: queued ones are never started, running ones are told
    to stop, and a report with one of them is refused. `messages` go to the inbox of the partition
    of the aggregate that they name (`aggregate_id`). A task that one commit issues and drops is
    dropped; a timer that it clears and sets is set.
    """

    sequence: int
    """The expected sequence: that of the last commit plus one."""
    consumed: InboxPosition | None = None
    histories: Sequence[HistoryRecord] = ()
    headers: Sequence[ExecutionHeader] = ()
    closed: Sequence[str] = ()
    """Aggregates that hold nothing any more (an empty limit): their history may be forgotten."""
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
        """The variable part only: history entries and the inline values of tasks."""
        return sum(len(history.entry) for history in self.histories) + sum(
            len(task.config) for task in self.tasks
        )


class Store(Protocol):
    """Partitions and their owners.

    A store that runs by itself may come back from its own crash as it was a moment earlier. No
    lease survives that: from then on it raises FencedError for each that was acquired before,
    because its owner has read, or waits for, what the store has forgotten.
    """

    limits: CommitLimits
    has_shared_failures: bool
    """Whether partitions of one process share what a call that failed may have changed: then all
    of them have to be given up and loaded again, not only the one that failed."""

    async def partitions(self) -> Sequence[int]:
        """All partitions that exist, owned or not."""

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        """The partition of an execution (or of a `limit:` key), also of one not made yet.

        With `is_new` its id was made up a moment ago, so nobody has to be asked where it is.
        """

    async def observe(self, partition: int) -> LeaseRecord | None:
        """None when nobody holds it: it can be acquired at once."""

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        """Takes a free partition, or one whose lease still is exactly `expected` (judged dead).

        Raises LeaseHeldError otherwise, and PartitionUnavailableError, as `observe` does, for one
        that can't be had while others can. The epoch grows, the nonce is new: from now on every
        commit of a former owner is refused.
        """

    async def restore(self, lease: Lease) -> Lease:
        """What a new owner does first: the store gets back what only the archive has of it.

        Returns the lease at the sequence behind which its commits go on; a store that is its own
        archive returns it as it is. Raises PartitionUnavailableError while the archive can't be
        asked about a store that may have lost something.
        """

    async def renew(self, lease: Lease) -> None:
        """Moves the counter; raises FencedError when the lease is not the current one."""

    async def release(self, lease: Lease) -> None:
        """Gives the partition back; not an error when it is already somebody else's."""

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        """Says that an orchestrator lives; returns all that have said so and not departed."""

    async def unregister_orchestrator(self, owner: str, *, counter: int | None = None) -> None:
        """The orchestrator ends: it is not listed any more until it attends again.

        With `counter` somebody else says so, and nothing happens when that is not its last sign.
        """

    async def commit(self, lease: Lease, commit: Commit) -> None:
        """Writes all of it, or nothing.

        Raises FencedError when epoch, nonce or sequence are not the expected ones, and
        CommitTooLargeError over `limits`. After any error the owner reloads: a commit is never
        sent twice.
        """

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        """The next unread entries in order, after waiting at most `wait_s` for the first.

        A lease reads each entry once; a new lease starts again behind the last `consumed` one.
        Cancelling the call loses nothing: what it did not return is read by the next one.
        """

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerRecord]:
        """Timers with `due <= now`, earliest first; they stay until a commit clears them."""

    async def next_due(self, lease: Lease) -> float | None:
        """When the earliest timer of the partition is due; None without timers."""

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        """All history entries of an aggregate in order; empty when there is none."""

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        """What `load` gives for each of them; as one call where a call is dear."""

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        """Executions of the partition that are RUNNING, oldest first: what a new owner looks at."""

    async def list_concurrency_keys(self, partition: int) -> Sequence[str]:
        """The concurrency keys of the partition that have a history."""
        ...

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[TaskToken]
    ) -> Mapping[TaskToken, bool | None]:
        """Those that the store neither holds queued nor claimed nor has an unread report of.

        True for one that may have killed the process that ran it, False for one that has not;
        None when the store does not know more than the history.
        """

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        """Those of the keys for which no timer is set."""

    async def unread_s(self, partition: int) -> float:
        """How long the oldest entry of the inbox has been unread, on the store's clock.

        0 when there is none, or when the store keeps no time of arrival.
        """

    async def unarchived(self, partition: int) -> int:
        """How many commits the archive lacks; 0 for a store that is its own."""

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        """A worker is dead: each task it holds becomes TaskLost in its inbox; returns how many.

        None when it has given a sign of life since: its record is not `record` any more. Unless
        that `is_crash`, no task counts as started, as with `leave`.
        """

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        """Fails tasks that have waited in the queue for at least `waiting_s`, the oldest first.

        Each is taken out and reported as TaskFailed in one step; returns how many, `limit` at most.
        """

    async def forget_queue(self, record: QueueRecord) -> bool:
        """Removes what is stored of an empty queue; False when a task has come since."""


class Mailbox(Protocol):
    """Where callers leave commands for a partition's owner."""

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        """Returns when all are stored; each goes to the inbox of its aggregate's partition.

        An execution that a CreateExecution makes can be found and listed (PENDING) from then on.
        `blobs` are the large values of the commands, by key: they are there when a command is, and
        commands that are refused leave none.

        With `requires_definition`, raises NotFoundError, and nothing is stored, when one of them
        makes an execution of a definition that is not stored, or was deleted: both is one step.
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
        """Up to `limit` tasks, fair over the queues (None = all), waiting for the first.

        None of them was dropped before: what is no longer to be run is not handed out. With
        `starts_tasks` they are started by the same step, as if `start` was called with all of them.
        """

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        """The start check: False for each claimed task that is no longer to be run (it is gone)."""

    def begin(self, token: TaskToken) -> None:
        """The code of a started task begins, perhaps behind others that were started with it.

        For stores in the worker's own process, whose successor wants to know what ran when it
        died. Any other store has nothing to do: this never waits.
        """

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        """Acknowledges each task and puts the report into its inbox, as one step.

        False: the token is not held by this worker any more, and the report was dropped.
        TaskStarted is a note: it does not end the claim.
        """

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        """Says that the worker lives and which tasks it holds; returns what it is to do.

        A task claimed by this worker and missing from `holds` in two beats is lost: its claim
        reply never arrived.
        """

    async def drain(self, worker: str) -> bool:
        """From now on its beats tell it to end in good order; False for one that is not listed."""

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        """Tokens that this worker holds and that were dropped by a commit, as soon as known."""

    async def leave(self, worker: str) -> None:
        """The worker ends: whatever it still holds becomes TaskLost at once.

        `was_started` is False in each, whatever `start` was told: a worker that says goodbye was
        not killed by its tasks, so this counts towards no crash loop.
        """

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        """Every worker that has claimed or beaten, for whoever judges which are dead.

        One that left, or whose tasks were lost by `lose_worker_tasks`, is no longer listed; but for
        the latter `with_dead`: the last hundred, unless they have come back.
        """

    async def queues(self) -> Sequence[QueueRecord]:
        """By name: those in which a task waits, and those that had one and were not forgotten."""

    async def get_cached_result(self, key: str) -> bytes | None:
        """The result that was kept under this key, if its time is not over."""

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        """For any worker to `get_cached_result`, for so long on the store's clock; replaces what
        was kept.
        """

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        """Takes a rate token from the bucket that all workers share, on the store's clock.

        Returns the seconds to wait before running: the token is reserved when that is at most
        `wait_s_max`, and not taken otherwise.
        """
