"""The context of one decision, and the evaluation of templates inside the core."""

from collections import deque
from typing import Protocol

import msgspec

from runnel.core.agenda import Agenda
from runnel.core.commands import Command, ReleaseLimit
from runnel.core.effects import (
    ClearTimer,
    DropTask,
    Effect,
    LoadBlob,
    SendCommand,
    SetTimer,
    StopTask,
    TimerKey,
    TimerKind,
)
from runnel.core.events import Event, Wait
from runnel.core.evolve import evolve
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, NodeId, Nonce, TaskToken
from runnel.core.message_text import shorten
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.states import NodeState
from runnel.core.templates.errors import MissingValueError, TemplateError, make_no_output_error
from runnel.core.templates.template import CompiledExpression, TemplateTree
from runnel.core.values import Json, Value
from runnel.core.workflow import EnginePolicy

NO_ITEM_VALUE = object()


class BlobNeededError(Exception):
    """Raised if a template reads a blob that is not in memory.

    The evaluation is repeated once the blob is loaded.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class LoadedBlobs(Protocol):
    """The blobs that are in memory. Decisions read these blobs without I/O."""

    def peek(self, key: str) -> bytes | None:
        """Returns the blob, or None if it is not in memory."""


class ExecutionScope:
    """The values for templates that the core evaluates: conditions, lists of maps, keys and
    outputs.

    The scope decodes an output only when an expression reads it. With `is_for_output`, every
    template that reads a value of a skipped node is null.
    """

    def __init__(
        self,
        execution: Execution,
        blobs: LoadedBlobs,
        *,
        item: object = NO_ITEM_VALUE,
        is_for_output: bool = False,
    ) -> None:
        self._is_for_output = is_for_output
        self._execution = execution
        self._blobs = blobs
        self._item = item

    def lookup(self, root: str) -> Json:
        if root == "input":
            return self._decode(self._execution.input)
        if root == "execution":
            return describe_execution(self._execution)
        if root == "item" and self._item is not NO_ITEM_VALUE:
            return self._item
        index = self._execution.graph.index.get(NodeId(root))
        if index is None:
            raise MissingValueError(root)
        run = self._execution.nodes[index]
        if run.state is not NodeState.COMPLETED or run.output is None:
            raise self._make_no_output_error(root, run.state)
        return self._decode(run.output)

    def _make_no_output_error(self, root: str, state: NodeState) -> MissingValueError:
        is_skipped = state is NodeState.SKIPPED
        return make_no_output_error(
            root,
            "was skipped" if is_skipped else f"is {state}",
            is_skipped=is_skipped,
            voids_template=self._is_for_output,
        )

    def _decode(self, value: Value) -> Json:
        if value.blob is None:
            return value.decode()
        data = self._blobs.peek(value.blob)
        if data is None:
            raise BlobNeededError(value.blob)
        return msgspec.json.decode(data)


def describe_execution(execution: Execution) -> Json:
    """Returns the value of `execution` in templates."""
    return {
        "id": execution.id,
        "workflow": execution.graph.workflow.name,
        "version": execution.version,
        "started_at": execution.started_at,
        "labels": execution.labels,
    }


TIMER_KIND_BY_WAIT = {
    Wait.RETRY: TimerKind.RETRY,
    Wait.CRASH: TimerKind.RETRY,
    Wait.RATE_LIMIT: TimerKind.RATE_LIMIT,
    Wait.SLEEP: TimerKind.SLEEP,
    Wait.SIGNAL: TimerKind.SIGNAL,
}


class DecisionInputs(msgspec.Struct, frozen=True):
    """The inputs of a decision: the time, a new nonce, the blobs in memory and the policy."""

    now: float
    nonce: Nonce
    blobs: LoadedBlobs
    policy: EnginePolicy = EnginePolicy()


class DecisionContext:
    """The state of one decision: the execution, its agenda, and the events and effects so far.

    The functions of this package change the agenda directly, and the execution only through `emit`.
    `to_evaluate` holds the nodes whose parents are all settled.
    """

    __slots__ = ("agenda", "effects", "events", "execution", "inputs", "to_evaluate")

    def __init__(self, execution: Execution, agenda: Agenda, inputs: DecisionInputs) -> None:
        self.execution = execution
        self.agenda = agenda
        self.inputs = inputs
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.to_evaluate: deque[int] = deque()

    @property
    def now(self) -> float:
        return self.inputs.now

    def emit(self, event: Event) -> None:
        self.events.append(event)
        evolve(self.execution, event, self.inputs.now)

    def queue_ready_children(self, index: int) -> None:
        """Queues those children of the node for evaluation whose parents are all settled.

        Call `queue_ready_children` after the event that settled the node.
        """
        execution = self.execution
        for child in execution.graph.nodes[index].children:
            if not execution.unsettled_parents[child]:
                self.to_evaluate.append(child)

    def send(self, command: Command) -> None:
        self.effects.append(SendCommand(command))

    def drop_task(self, index: int, item: int, run: NodeRun) -> None:
        self.effects.append(DropTask(self.execution.token(index, item, run)))

    def stop_task(self, token: TaskToken) -> None:
        self.effects.append(StopTask(token))

    def release_limit(self, index: int, item: int, run: NodeRun) -> None:
        """Releases the concurrency key that this attempt holds or waits for."""
        if run.key:
            holder = self.execution.token(index, item, run)
            self.effects.append(SendCommand(ReleaseLimit(key=run.key, holder=holder)))

    def set_timer(
        self, index: int, item: int, kind: TimerKind, *, due: float, attempt: int
    ) -> None:
        key = self._make_timer_key(index, item, kind)
        self.effects.append(SetTimer(key, due, attempt))

    def clear_timer(self, index: int, item: int, kind: TimerKind) -> None:
        self.effects.append(ClearTimer(self._make_timer_key(index, item, kind)))

    def find_current_run(self, token: TaskToken) -> tuple[int, NodeRun] | None:
        """Returns the node or item whose current attempt has this token; None for an old token.

        An old token comes from a worker that counted as dead. A newer attempt has replaced the
        attempt of an old token.
        """
        index = self.execution.graph.index.get(token.node_id)
        if index is None or self.execution.is_final:
            return None
        run = self.execution.run(index, token.item)
        if run is None or run.is_final:
            return None
        if run.attempt != token.attempt or run.nonce != token.nonce:
            return None
        if token.item == NO_ITEM and index in self.execution.maps:
            return None
        return index, run

    def _make_timer_key(self, index: int, item: int, kind: TimerKind) -> TimerKey:
        return TimerKey(self.execution.id, self.execution.graph.nodes[index].node.id, item, kind)


# -- evaluation of templates ---------------------------------------------------------------

PREVIEW_CHARS_MAX = 60
# The longest concurrency key or signal name.
NAME_CHARS_MAX = 500

_encoder = msgspec.json.Encoder()


class EvaluatedValue(msgspec.Struct, frozen=True):
    value: Json


def evaluate_template(
    context: DecisionContext,
    index: int,
    compiled: TemplateTree | CompiledExpression | None,
    *,
    item: int = NO_ITEM,
) -> EvaluatedValue | ErrorInfo | None:
    """Returns the value of a template or expression, or the error of its evaluation.

    Returns None if a blob must be loaded first. In that case the blob is requested, and the node is
    evaluated again once it is loaded.
    """
    execution = context.execution
    item_value: object = NO_ITEM_VALUE
    if item != NO_ITEM:
        item_value = context.agenda.get_item(index, item)
    scope = ExecutionScope(execution, context.inputs.blobs, item=item_value)
    try:
        match compiled:
            case TemplateTree():
                return EvaluatedValue(compiled.resolve(scope))
            case CompiledExpression():
                return EvaluatedValue(compiled.evaluate(scope))
            case None:
                return EvaluatedValue(None)
    except BlobNeededError as needed:
        request_blob(context, (index, item), needed.key)
        return None
    except TemplateError as error:
        return make_error_info(error)


def request_blob(context: DecisionContext, node_item: tuple[int, int], key: str) -> None:
    """Requests a blob for a node or item, once.

    The command BlobLoaded evaluates the node or item again.
    """
    if node_item not in context.agenda.awaited_blobs:
        context.agenda.awaited_blobs[node_item] = None
        context.effects.append(LoadBlob(context.execution.id, key))


def preview_json(value: Json) -> str:
    """Returns the beginning of the value's JSON, for a message."""
    return shorten(_encoder.encode(value).decode(), PREVIEW_CHARS_MAX)


def make_error_info(error: Exception) -> ErrorInfo:
    """Returns the description of a user's mistake that a decision found.

    Such a mistake is never retried.
    """
    message = str(error)[:MESSAGE_CHARS_MAX]
    return ErrorInfo(type=type(error).__name__, message=message, retryable=False)
