"""Decisions and their effects: what is to be done in the commit of the events, or after it."""

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
    """One attempt, with all that a worker needs to run it: no other read is necessary.

    `config` is the node's template tree as JSON; the worker resolves it against `inputs`,
    `execution_input` and `item`, so that nobody but the worker looks inside large outputs.
    """

    token: TaskToken
    handler: str
    queue: str
    config: msgspec.Raw
    inputs: dict[NodeId, Value] = {}
    parents: int = 0
    """How many of `inputs`, from the first, are parents."""
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
    """A template, or null for the key that follows from what the task gets; empty: no cache."""
    cache_ttl_s: float = 0.0
    failures: int = 0
    issued_at: float


class TimerKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """At most one timer is set per key; setting it again moves it."""

    execution_id: ExecutionId
    node_id: NodeId
    item: int = NO_ITEM
    kind: TimerKind = TimerKind.RETRY


class IssueTask(msgspec.Struct, frozen=True, gc=False):
    task: TaskMessage


class DropTask(msgspec.Struct, frozen=True, gc=False):
    """The attempt is over: not to be started any more, and told to stop if it runs."""

    token: TaskToken


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey
    due: float
    attempt: int = 0


class ClearTimer(msgspec.Struct, frozen=True, gc=False):
    key: TimerKey


class SendCommand(msgspec.Struct, frozen=True, gc=False):
    """A command for another aggregate: handled in the same batch when its writer is this one."""

    command: Command


class LoadBlob(msgspec.Struct, frozen=True, gc=False):
    """Deciding needs the content of this blob: load it, then send BlobLoaded."""

    execution_id: ExecutionId
    key: str


class StoreOutput(msgspec.Struct, frozen=True, gc=False):
    """Write the joined output of a map aside, then send OutputStored.

    Its `key` is a new one each time, as all keys are: a store that was set back may come to another
    output, and whoever has read the former one keeps that by its key.
    """

    ref: NodeRef
    key: str
    parts: list[Value]


class ShareValues(msgspec.Struct, frozen=True, gc=False):
    """Write these, which have names in templates, aside by their keys; then send ValuesShared.

    The keys are new ones, for the same reason as that of StoreOutput.
    """

    execution_id: ExecutionId
    values: dict[str, Value]
    nonce: Nonce

    def make_key(self, name: str) -> str:
        return f"{self.execution_id}/{name}/shared/{self.nonce}"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that needs a person: the original fields, and what was wrong with it.

    Encoded again, it is the same bytes: stores find it by them.
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


# Done between two commits: the result is a command of its own.
PostCommitEffect: TypeAlias = LoadBlob | StoreOutput | ShareValues
Effect: TypeAlias = (
    IssueTask | DropTask | SetTimer | ClearTimer | SendCommand | PutDeadLetter | PostCommitEffect
)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The events that are true now, and the effects that follow from them.

    The events have already been applied to the aggregate; no effect has been carried out yet.
    """

    events: Sequence[AnyEvent] = ()
    effects: Sequence[Effect] = ()


NOTHING = Decision()
