"""Decisions and their effects: what happens in the commit of the events, or after it."""

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


# The name of the execution's input in templates and among the values of a task.
INPUT = "input"


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt, with everything that a worker needs to run it. It needs no further read.

    `config` is the node's template tree as JSON. The worker resolves it against `inputs`,
    `execution_input` and `item`, so that only the worker decodes large outputs.
    """

    token: TaskToken
    handler: str
    queue: str
    config: msgspec.Raw
    inputs: dict[NodeId, Value] = {}
    parents: int = 0
    """The number of parents: they are the first of `inputs`."""
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
    """A template, or null for a key derived from the task's values. Empty: no cache."""
    cache_ttl_s: float = 0.0
    failures: int = 0
    issued_at: float


class TimerKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The key of a timer. At most one timer is set per key; setting it again moves it."""

    execution_id: ExecutionId
    node_id: NodeId
    item: int = NO_ITEM
    kind: TimerKind = TimerKind.RETRY


class IssueTask(msgspec.Struct, frozen=True, gc=False):
    task: TaskMessage


class DropTask(msgspec.Struct, frozen=True, gc=False):
    """Ends an attempt: a queued task must not start, and a running one has to stop."""

    token: TaskToken


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey
    due: float
    attempt: int = 0


class ClearTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey


class SendCommand(msgspec.Struct, frozen=True, gc=False):
    """Sends a command to another aggregate.

    If this owner writes it too, the same batch handles it.
    """

    command: Command


class LoadBlob(msgspec.Struct, frozen=True, gc=False):
    """Loads a blob that the decision needs, then sends BlobLoaded."""

    execution_id: ExecutionId
    key: str


class StoreOutput(msgspec.Struct, frozen=True, gc=False):
    """Writes the joined output of a map to a blob, then sends OutputStored.

    `key` is new each time, like all blob keys. After a rollback, the store may produce a different
    output, and a reader that has cached the former one keeps it under its own key.
    """

    ref: NodeRef
    key: str
    parts: list[Value]


class ShareValues(msgspec.Struct, frozen=True, gc=False):
    """Writes values, by their names in templates, to blobs; then sends ValuesShared.

    The keys are new each time, for the same reason as in StoreOutput.
    """

    execution_id: ExecutionId
    values: dict[str, Value]
    nonce: Nonce

    def make_key(self, name: str) -> str:
        return f"{self.execution_id}/{name}/shared/{self.nonce}"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that needs a person: its original fields and its error.

    Encoding it again gives the same bytes, by which stores find it.
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


# Performed between two commits. The result is a command of its own.
PostCommitEffect: TypeAlias = LoadBlob | StoreOutput | ShareValues
Effect: TypeAlias = (
    IssueTask | DropTask | SetTimer | ClearTimer | SendCommand | PutDeadLetter | PostCommitEffect
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The events that are now true, and the effects that follow from them.

    The events are already applied to the aggregate. The effects are not performed yet.
    """

    events: Sequence[AnyEvent] = ()
    effects: Sequence[Effect] = ()


NOTHING = Decision()
