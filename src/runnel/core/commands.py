"""What can be asked of an execution: imperative, tagged, and safe to receive twice."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from runnel.core.ids import DefinitionHash, ExecutionId, NodeId, NodeRef, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, TaskLogLine, Value
from runnel.core.workflow import ReusedResult


class _Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """Each has an `aggregate_id`: what it changes, an execution, or `limit:` and a key.

    Not asked by `isinstance`: of a struct that takes 0.12 µs for each class that it is not.
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
    """Makes a PENDING execution, and starts it at once unless `is_held` (submit, then trigger)."""

    workflow: str
    definition: DefinitionHash
    version: int
    input: Value = EMPTY_OBJECT
    labels: dict[str, str] = {}
    parent: TaskToken | None = None
    rerun_of: ExecutionId | None = None
    is_held: bool = False
    created_at: float


class TakeOver(_ExecutionCommand, frozen=True, kw_only=True):
    """Settles nodes of a PENDING execution as the one that it is a rerun of did.

    `part` tells several of one execution apart. `configs` replace those of the definition.
    """

    part: int = 0
    taken: list[ReusedResult] = []
    configs: dict[NodeId, msgspec.Raw] = {}


class StartExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Triggers a PENDING execution; `input`, when given, replaces the one it was made with.

    Not before it was told so many `parts` that it takes over: one may have to be sent again. `key`
    tells callers that trigger it at the same time whose it was.
    """

    input: Value | None = None
    parts: int = 0
    key: str = ""


class TaskStarted(_TaskCommand, frozen=True, kw_only=True):
    """A worker runs this task for longer than a moment: worth showing as RUNNING."""

    worker: str
    started_at: float


class TaskCompleted(_TaskCommand, frozen=True, kw_only=True):
    """`is_cached`: its code was not run, the output is that of an earlier task."""

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
    """The task's own code found that there is nothing to do; `reason` is what it said."""

    reason: str = ""
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class TaskLost(_TaskCommand, frozen=True, kw_only=True):
    """Whoever held the task is gone; `was_started` counts it towards the crash-loop limit."""

    reason: str
    was_started: bool = False


class TaskDeferred(_TaskCommand, frozen=True, kw_only=True):
    """The worker may not run the task before `until` (a rate limit): it holds no slot till then.

    `wait_s` says the same on the clock of whoever decides: a worker whose own clock is behind would
    name a time that is over, and get the task back at once, over and over.
    """

    until: float
    wait_s: float | None = None
    reason: str = "rate limit"


class TimerFired(_NodeCommand, frozen=True, kw_only=True):
    """`attempt` is that of the node when the timer was set: an older one is ignored."""

    kind: str
    attempt: int = 0


class SendSignal(_ExecutionCommand, frozen=True, kw_only=True):
    name: str
    payload: Value
    signal_id: str


class CancelExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Clean-up nodes still run, unless it `is_forced`; asking twice is asking once."""

    reason: str = "cancelled by request"
    is_forced: bool = False


class ChildSettled(_TaskCommand, frozen=True, kw_only=True):
    """A child execution reached a final state; `token` is the one its parent started it with."""

    child_id: ExecutionId
    state: ExecutionState
    output: Value | None = None
    error: ErrorInfo | None = None


class AcquireLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    """Asks the writer of a concurrency key for one of its places."""

    limit: int
    holder: TaskToken


class ReleaseLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    holder: TaskToken


class ResumeLimit(_LimitKeyCommand, frozen=True, kw_only=True):
    """Tell all holders again: one that does not hold it any more gives it back.

    Sent for each key after a takeover: of a decision in several commits, the part that released
    it may be the one that was lost.
    """


class LimitGranted(_Command, frozen=True, kw_only=True):
    key: str
    holder: TaskToken

    @property
    def aggregate_id(self) -> str:
        return self.holder.execution_id


class BlobLoaded(_ExecutionCommand, frozen=True, kw_only=True):
    """A blob that deciding needed is at hand now; only ever sent by the orchestrator to itself."""


class OutputStored(_NodeCommand, frozen=True, kw_only=True):
    """The joined output of a map has been written aside."""

    output: Value


class ValuesShared(_ExecutionCommand, frozen=True, kw_only=True):
    """What the items of a map would have carried was written aside: as their tasks name it."""

    values: dict[str, Value]


class ResumeExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """Look again at everything that could go on: sent for each execution after a takeover."""


class FailExecution(_ExecutionCommand, frozen=True, kw_only=True):
    """End the execution at once: deciding raised, which is a bug of Runnel's."""

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
# After one of these, nobody holds the task any more.
TASK_ENDINGS = (TaskCompleted, TaskFailed, TaskSkipped, TaskLost, TaskDeferred)


LIMIT_PREFIX = "limit:"


def make_limit_id(key: str) -> str:
    return LIMIT_PREFIX + key


def list_command_blobs(commands: Iterable[Command]) -> Iterator[str]:
    """The keys of the large values that their caller has put aside."""
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
