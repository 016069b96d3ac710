"""Events: facts in the past tense, from which the state of an execution is rebuilt."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from runnel.core.ids import NO_ITEM, DefinitionHash, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.run_when import SkipReason
from runnel.core.states import ExecutionState
from runnel.core.values import TaskLogLine, Value
from runnel.core.workflow import ReusedResult


class Wait(StrEnum):
    """The reason why a node is WAITING."""

    RETRY = "retry"
    CRASH = "crash"
    RATE_LIMIT = "rate limit"
    SLEEP = "sleep"
    SIGNAL = "signal"
    LIMIT = "concurrency key"
    SLOT = "slot"
    CHILD = "child execution"


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    pass


class _NodeEvent(_Event, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    node: NodeId
    item: int = NO_ITEM


class ExecutionCreated(_Event, frozen=True, kw_only=True):
    execution_id: ExecutionId
    workflow: str
    version: int
    definition: DefinitionHash
    input: Value
    labels: dict[str, str] = {}
    priority: int = 0
    parent: TaskToken | None = None
    rerun_of: ExecutionId | None = None
    created_at: float


class ExecutionStarted(_Event, frozen=True, kw_only=True):
    input: Value | None = None
    key: str = ""


class NodesTaken(_Event, frozen=True, kw_only=True):
    """A rerun has reused results of the previous execution.

    The nodes of these results do not run again.

    The reused result of an item is kept until the item's map begins.
    """

    part: int = 0
    taken: list[ReusedResult] = []
    configs: dict[NodeId, msgspec.Raw] = {}


class NodeQueued(_NodeEvent, frozen=True, kw_only=True):
    """A task was issued. From now on, only reports with this attempt and nonce are accepted."""

    attempt: int
    nonce: Nonce
    key: str = ""


class NodeStarted(_NodeEvent, frozen=True, kw_only=True):
    worker: str
    started_at: float


class NodeCompleted(_NodeEvent, frozen=True, kw_only=True):
    output: Value
    worker: str = ""
    started_at: float | None = None
    is_cached: bool = False
    logs: tuple[TaskLogLine, ...] = ()


class NodeFailed(_NodeEvent, frozen=True, kw_only=True):
    error: ErrorInfo
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class NodeSkipped(_NodeEvent, frozen=True, kw_only=True):
    """A node or item was skipped.

    An item is skipped only if its own code raises Skip; `detail` is the message of that Skip.
    If the node's `run_when` was not met, `detail` names the rule.
    """

    reason: SkipReason
    detail: str = ""
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class NodeCancelled(_NodeEvent, frozen=True, kw_only=True):
    """A node or item was cancelled.

    If `stop_due` is given, the code or the child execution of the attempt may still run, and
    clean-up nodes wait for its end. For code, they wait until `stop_due` at most.
    """

    reason: str
    stop_due: float | None = None


class CodeEnded(_NodeEvent, frozen=True, kw_only=True):
    """The code or the child execution of a cancelled attempt has ended.

    With `is_assumed`, no worker has reported the end within the time limit.
    """

    is_assumed: bool = False


class RetryPlanned(_NodeEvent, frozen=True, kw_only=True):
    error: ErrorInfo
    due: float
    worker: str = ""
    started_at: float | None = None
    logs: tuple[TaskLogLine, ...] = ()


class TaskWasLost(_NodeEvent, frozen=True, kw_only=True):
    reason: str
    was_started: bool = False
    was_alone: bool = False


class NodeWaits(_NodeEvent, frozen=True, kw_only=True):
    """A node or item waits.

    `due` is the time at which a timer ends the wait. `detail` names the signal, concurrency key or
    child.
    """

    wait: Wait
    due: float | None = None
    detail: str = ""
    attempt: int | None = None
    nonce: Nonce | None = None


class MapStarted(_Event, frozen=True, kw_only=True):
    """A map has begun.

    The items of the map are not stored, because they follow from the graph and earlier outputs.

    `shared` holds values that were offloaded for the map's tasks, by node id or as `input`.
    """

    node: NodeId
    count: int
    shared: dict[str, Value] = {}


class SignalReceived(_Event, frozen=True, kw_only=True):
    signal_id: str
    name: str
    payload: Value


class SignalConsumed(_Event, frozen=True, kw_only=True):
    signal_id: str
    node: NodeId


def describe_closing(outcome: ExecutionState | None, error: ErrorInfo | None) -> str:
    """Returns why the unsettled nodes of a closing execution are cancelled.

    Names a failed node without its error, because every cancelled node repeats this text.
    """
    if error is None:
        is_cancelled = outcome is ExecutionState.CANCELLED
        return "the execution was cancelled" if is_cancelled else str(outcome)
    node, separator, _ = error.message.partition(" failed: ")
    return f"{node} failed" if error.type == "NodeFailed" and separator else str(error)


class ExecutionClosing(_Event, frozen=True, kw_only=True):
    """The outcome of the execution is set.

    All nodes that have not begun are cancelled, and clean-up nodes run.

    With `is_abrupt`, not even clean-up nodes run. With `is_awaited`, a parent waits until the code
    of all cancelled nodes has ended.
    """

    outcome: ExecutionState
    error: ErrorInfo | None = None
    is_abrupt: bool = False
    is_awaited: bool = False


class SlaMissed(_Event, frozen=True, kw_only=True):
    sla_s: float


class ExecutionFinished(_Event, frozen=True, kw_only=True):
    state: ExecutionState
    output: Value | None = None
    error: ErrorInfo | None = None


class LimitHeld(_Event, frozen=True, kw_only=True):
    holder: TaskToken
    limit: int


class LimitQueued(_Event, frozen=True, kw_only=True):
    holder: TaskToken
    limit: int


class LimitReleased(_Event, frozen=True, kw_only=True):
    holder: TaskToken


Event: TypeAlias = (
    ExecutionCreated
    | ExecutionStarted
    | NodesTaken
    | NodeQueued
    | NodeStarted
    | NodeCompleted
    | NodeFailed
    | NodeSkipped
    | NodeCancelled
    | CodeEnded
    | RetryPlanned
    | TaskWasLost
    | NodeWaits
    | MapStarted
    | SignalReceived
    | SignalConsumed
    | ExecutionClosing
    | SlaMissed
    | ExecutionFinished
)
LimitEvent: TypeAlias = LimitHeld | LimitQueued | LimitReleased
AnyEvent: TypeAlias = Event | LimitEvent


def find_end(events: Sequence[AnyEvent]) -> ExecutionFinished | None:
    """Returns the event that ended the execution, if it is one of the events."""
    ends = (event for event in reversed(events) if isinstance(event, ExecutionFinished))
    return next(ends, None)
