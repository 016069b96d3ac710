"""Decisions and their effects.

The owner of a partition performs an effect in the commit of the events, or after that commit.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from runnel.core.commands import Command
from runnel.core.events import AnyEvent
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, NodeRef, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.values import NO_DATA, Value


class TimerKind(StrEnum):
    RETRY = "retry"
    RATE_LIMIT = "rate_limit"
    SLEEP = "sleep"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    SLA = "sla"
    STOP = "stop"


# The name of the execution's input in templates and among the values of a task.
INPUT = "input"


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt of a task, with all data that a worker needs to run it.

    `config` is the node's template tree as JSON. The worker resolves the templates with `inputs`,
    `execution_input` and `item`, so that only the worker decodes large outputs.
    """

    token: TaskToken
    handler: str
    queue: str
    config: msgspec.Raw
    inputs: dict[NodeId, Value] = {}
    parents: int = 0
    """The number of parents with an output.

    The outputs of the parents are the first entries of `inputs`.
    """
    execution_input: Value
    workflow: str
    version: int
    labels: dict[str, str] = {}
    execution_started_at: float
    item: msgspec.Raw = NO_DATA
    timeout_s: float
    soft_timeout_s: float | None = None
    resource_tag: str | None = None
    rate_per_second: float | None = None
    burst: int = 1
    cache_key: msgspec.Raw = NO_DATA
    """The template of the cache key, or null for a key that is derived from the task's values.

    Empty if results are not cached.
    """
    cache_ttl_s: float = 0.0
    failures: int = 0
    issued_at: float
    priority: int = 0
    """Tasks with a higher priority come first in their queue."""
    place: float = 0.0
    """The position among the tasks of the workflow in the queue: the lowest place comes first.

    The place is a time in seconds. Tasks that were stored before this field existed come first.
    """
    losses: int = 0
    """The number of processes that died while they held the task."""
    skipped: tuple[NodeId, ...] = ()
    """The nodes that the config reads and that were skipped, so that they have no output."""


class TimerKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The key of a timer. At most one timer is set per key.

    Setting a timer again changes its due time.
    """

    execution_id: ExecutionId
    node_id: NodeId
    item: int = NO_ITEM
    kind: TimerKind = TimerKind.RETRY


class IssueTask(msgspec.Struct, frozen=True, gc=False):
    task: TaskMessage


class DropTask(msgspec.Struct, frozen=True, gc=False):
    """Ends an attempt. A queued task must not start, and a running task must stop."""

    token: TaskToken


class StopTask(msgspec.Struct, frozen=True, gc=False):
    """Ends an attempt as DropTask does. The store also reports the end of the task's code.

    The report is TaskStopped, or TaskLost if no worker can report it.
    """

    token: TaskToken


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey
    due: float
    attempt: int = 0


class ClearTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey


class SendCommand(msgspec.Struct, frozen=True, gc=False):
    """Sends a command to another aggregate.

    If that aggregate is in the same partition, the same batch handles the command.
    """

    command: Command


class LoadBlob(msgspec.Struct, frozen=True, gc=False):
    """Loads a blob that a decision needs into memory, then sends BlobLoaded."""

    execution_id: ExecutionId
    key: str


class StoreOutput(msgspec.Struct, frozen=True, gc=False):
    """Writes the joined output of a map, or the output of the execution, to a blob; then sends
    OutputStored.

    `key` is new each time, like all blob keys. After a rollback of the store, the output may be
    different. A process that has cached the earlier output holds it under the earlier key.
    """

    ref: NodeRef
    key: str
    parts: list[Value]


class ShareValues(msgspec.Struct, frozen=True, gc=False):
    """Writes values to blobs, by their names in templates; then sends ValuesShared.

    The keys are new each time, for the same reason as in StoreOutput.
    """

    execution_id: ExecutionId
    values: dict[str, Value]
    nonce: Nonce

    def make_key(self, name: str) -> str:
        return f"{self.execution_id}/{name}/shared/{self.nonce}"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rejected task that a person has to handle, with its original fields and its error.

    Encoding a decoded letter gives the same bytes. Stores look letters up by these bytes.
    """

    token: TaskToken
    queue: str
    handler: str
    config: msgspec.Raw
    error: ErrorInfo
    reason: str
    rejected_at: float
    workflow: str = ""


class PutDeadLetter(msgspec.Struct, frozen=True):
    letter: DeadLetter


# Effects that the owner performs after a commit. A new command carries the result into the next
# batch.
PostCommitEffect: TypeAlias = LoadBlob | StoreOutput | ShareValues
Effect: TypeAlias = (
    IssueTask
    | DropTask
    | StopTask
    | SetTimer
    | ClearTimer
    | SendCommand
    | PutDeadLetter
    | PostCommitEffect
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The events of one decision, and the effects that follow from them.

    The events are already applied to the aggregate. The effects are not performed yet.
    """

    events: Sequence[AnyEvent] = ()
    effects: Sequence[Effect] = ()


NOTHING = Decision()
