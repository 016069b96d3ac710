"""Commands to executions and concurrency keys. A command is safe to receive twice."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from runnel.core.ids import DefinitionHash, ExecutionId, NodeId, NodeRef, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, TaskLogLine, Value
from runnel.core.workflow import ReusedResult


class _Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """The base of all commands. `aggregate_id` is the id of the execution, or `limit:` and a key.

    Do not test commands with `isinstance` against this base: each class that does not match takes
    0.12 µs.
    """


class _ExecutionCommand(_Command, frozen=True, kw_only=True):
    execution_id: ExecutionId

    @property
    def aggregate_id(self) -> str:
        return self.execution_id


class _TaskCommand(_Command, frozen=True, kw_only=True):
    token: TaskToken

    @property
    def aggregate_id(self) -> str:
        return self.token.execution_id


class _NodeCommand(_Command, frozen=True, kw_only=True):
    ref: NodeRef

    @property
    def aggregate_id(self) -> str:
        return self.ref.execution_id


class _LimitKeyCommand(_Command, frozen=True, kw_only=True):
    key: str

    @property
    def aggregate_id(self) -> str:
        return make_limit_id(self.key)


class CreateExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Creates a PENDING execution and starts it at once.

    With `is_held`, the execution stays PENDING until a StartExecution. Without a `priority`, the
    execution has the priority of the workflow.
    """

    workflow: str
    definition: DefinitionHash
    version: int
    input: Value = EMPTY_OBJECT
    labels: dict[str, str] = {}
    priority: int | None = None
    parent: TaskToken | None = None
    rerun_of: ExecutionId | None = None
    is_held: bool = False
    created_at: float


class TakeOver(_ExecutionCommand, frozen=True, kw_only=True):
    """Settles nodes of a PENDING rerun with the results of the previous execution.

    `part` distinguishes several such commands for one execution. `configs` holds configs that
    replace those of the definition, by node.
    """

    part: int = 0
    taken: list[ReusedResult] = []
    configs: dict[NodeId, msgspec.Raw] = {}


class StartExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Starts a PENDING execution.

    `input`, if given, replaces the input from the creation of the execution.

    The command has no effect before `parts` TakeOver commands were applied, because one of these
    may have to be sent again. Several callers may start the execution at the same time. `key`
    identifies the caller that succeeded.
    """

    input: Value | None = None
    parts: int = 0
    key: str = ""


class TaskStarted(_TaskCommand, frozen=True, kw_only=True):
    """Reports that a worker has been running the task for 0.25 s. The node then becomes RUNNING."""

    worker: str
    started_at: float


class TaskCompleted(_TaskCommand, frozen=True, kw_only=True):
    """Reports the output of a task.

    `is_cached` means that the code did not run: the output is that of an earlier task.
    """

    output: Value
    worker: str = ""
    started_at: float | None = None
    is_cached: bool = False
    logs: tuple[TaskLogLine, ...] = ()


class TaskFailed(_TaskCommand, frozen=True, kw_only=True):
    error: ErrorInfo
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class TaskSkipped(_TaskCommand, frozen=True, kw_only=True):
    """Reports that the task's own code raised Skip. `reason` is the message of that Skip."""

    reason: str = ""
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class TaskLost(_TaskCommand, frozen=True, kw_only=True):
    """Reports that no worker holds the task any more.

    If `was_started`, a process died while it held the task. If `was_alone` too, that process held
    no other task, so the loss counts towards the crash-loop limit.
    """

    reason: str
    was_started: bool = False
    was_alone: bool = False


class TaskStopped(_TaskCommand, frozen=True, kw_only=True):
    """Reports that the code of a stopped task has ended, or never began.

    The report has no result: the attempt was cancelled when its task was stopped.
    """


class TaskDeferred(_TaskCommand, frozen=True, kw_only=True):
    """Reports that a rate limit does not allow the task before `until`.

    The worker frees the task's slot.

    `wait_s` is the same delay in seconds, which the owner adds to its own clock. If the worker's
    clock were behind, `until` would be in the past, and the worker would get the task back at once,
    again and again.
    """

    until: float
    wait_s: float | None = None
    reason: str = "rate limit"


class TimerFired(_NodeCommand, frozen=True, kw_only=True):
    """Reports a due timer.

    `attempt` is the attempt of the node when the timer was set. A timer of an older attempt is
    ignored.
    """

    kind: str
    attempt: int = 0


class SendSignal(_ExecutionCommand, frozen=True, kw_only=True):
    """Delivers a signal to an execution. A second delivery of the same `signal_id` is ignored."""

    name: str
    payload: Value
    signal_id: str


class CancelExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Cancels an execution.

    Clean-up nodes still run, unless the cancellation `is_forced`. A repeated cancellation is
    harmless. If `awaited_by` is given, the execution ends only after the code of its stopped tasks
    has ended. The attempt `awaited_by` of the parent receives ChildSettled, also if the execution
    has already ended or was never created.
    """

    reason: str = "cancelled by request"
    is_forced: bool = False
    awaited_by: TaskToken | None = None


class ChildSettled(_TaskCommand, frozen=True, kw_only=True):
    """Reports that a child execution is final.

    `token` is the token of the parent's attempt that started the child.
    """

    child_id: ExecutionId
    state: ExecutionState
    output: Value | None = None
    error: ErrorInfo | None = None


class AcquireLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    """Requests a concurrency key from its owner."""

    limit: int
    holder: TaskToken


class ReleaseLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    """Releases a concurrency key, or stops waiting for it."""

    holder: TaskToken


class ResumeLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    """Sends LimitGranted to all holders of a key again.

    A holder that no longer needs the key releases it.

    A new owner of a partition sends this command for each key after a takeover. If a decision was
    split over several commits, the part that released the key may be lost.
    """


class LimitGranted(_Command, frozen=True, kw_only=True):
    """Notifies an attempt that it holds the concurrency key."""

    key: str
    holder: TaskToken

    @property
    def aggregate_id(self) -> str:
        return self.holder.execution_id


class BlobLoaded(_ExecutionCommand, frozen=True, kw_only=True):
    """Reports that a blob for a decision is loaded.

    The owner of a partition sends this command to itself.
    """


class OutputStored(_NodeCommand, frozen=True, kw_only=True):
    """Reports that the output of a map or of the execution was written to a blob."""

    output: Value


class ValuesShared(_ExecutionCommand, frozen=True, kw_only=True):
    """Reports that shared values of a map's items were written to blobs.

    `values` holds the references to these blobs by the values' names in templates.
    """

    values: dict[str, Value]


class ResumeExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Makes the owner derive all effects of a running execution again, because some may be lost.

    A new owner of a partition sends this command for each running execution.
    """


class FailExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Ends the execution as FAILED at once, because its decision raised an error."""

    error: ErrorInfo


Command: TypeAlias = (
    CreateExecution
    | TakeOver
    | StartExecution
    | TaskStarted
    | TaskCompleted
    | TaskFailed
    | TaskSkipped
    | TaskLost
    | TaskStopped
    | TaskDeferred
    | TimerFired
    | SendSignal
    | CancelExecution
    | ChildSettled
    | AcquireLimit
    | ReleaseLimit
    | ResumeLimit
    | LimitGranted
    | BlobLoaded
    | OutputStored
    | ValuesShared
    | ResumeExecution
    | FailExecution
)

LimitCommand: TypeAlias = AcquireLimit | ReleaseLimit | ResumeLimit
# After one of these commands, no worker holds the task any more.
TASK_ENDINGS = (TaskCompleted, TaskFailed, TaskSkipped, TaskLost, TaskStopped, TaskDeferred)


LIMIT_PREFIX = "limit:"


def make_limit_id(key: str) -> str:
    return LIMIT_PREFIX + key


def list_command_blobs(commands: Iterable[Command]) -> Iterator[str]:
    """Yields the blob keys of large values in the commands. The sender has written these blobs."""
    for command in commands:
        for value in _list_values(command):
            if value is not None and value.blob is not None:
                yield value.blob


def _list_values(command: Command) -> Iterator[Value | None]:
    if isinstance(command, CreateExecution | StartExecution):
        yield command.input
    elif isinstance(command, SendSignal):
        yield command.payload
    elif isinstance(command, TakeOver):
        yield from (reused.output for reused in command.taken)
