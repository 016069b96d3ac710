"""The handlers that the core runs itself: sleep, wait_for_signal and child workflows."""

import msgspec

from runnel.core.commands import ChildSettled, CreateExecution, SendSignal
from runnel.core.decide.decision_context import (
    NAME_CHARS_MAX,
    DecisionContext,
    evaluate_template,
    preview_json,
)
from runnel.core.decide.outcomes import fail_node
from runnel.core.effects import TimerKind
from runnel.core.events import NodeCompleted, NodeWaits, SignalConsumed, SignalReceived, Wait
from runnel.core.execution import PENDING_RUN, NodeRun
from runnel.core.ids import NO_ITEM, NodeRef, make_child_id
from runnel.core.input_defaults import fill_defaults
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import NULL, Json, Value, is_number, make_inline_value, make_value_from_json
from runnel.core.workflow import CHILD_WORKFLOW, SLEEP

# The longest sleep or wait, about three centuries. A longer wait is a mistake in the unit.
SECONDS_MAX = 1e10

_encoder = msgspec.json.Encoder()


def start_core_handler(context: DecisionContext, index: int, item: int = NO_ITEM) -> None:
    """Starts a sleep, a wait for a signal or a child execution.

    Resolves the config in the core, because no worker does. An invalid value fails the node.
    """
    compiled = context.execution.graph.nodes[index]
    evaluated = evaluate_template(context, index, compiled.config, item=item)
    if evaluated is None:
        return
    if isinstance(evaluated, ErrorInfo):
        fail_node(context, index, evaluated, item=item)
    elif compiled.node.handler == SLEEP:
        _start_sleep(context, index, evaluated.value)
    elif compiled.node.handler == CHILD_WORKFLOW:
        _start_child(context, index, item, evaluated.value)
    else:
        _start_signal_wait(context, index, evaluated.value)


def _start_sleep(context: DecisionContext, index: int, config: Json) -> None:
    seconds = _parse_seconds(config.get("seconds"))
    if seconds is None:
        _fail_bad_setting(context, index, "seconds", config.get("seconds"))
        return
    due = context.now + seconds
    _emit_wait(context, index, Wait.SLEEP, due=due)
    context.set_timer(index, NO_ITEM, TimerKind.SLEEP, due=due, attempt=1)


def _start_signal_wait(context: DecisionContext, index: int, config: Json) -> None:
    name, limit = config.get("signal"), config.get("timeout_seconds")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        _fail_bad_setting(context, index, "signal", name)
        return
    seconds = None if limit is None else _parse_seconds(limit)
    if limit is not None and seconds is None:
        _fail_bad_setting(context, index, "timeout_seconds", limit)
        return
    due = None if seconds is None else context.now + seconds
    _emit_wait(context, index, Wait.SIGNAL, due=due, detail=name)
    if due is not None:
        context.set_timer(index, NO_ITEM, TimerKind.SIGNAL, due=due, attempt=1)
    consume_signal(context, index)


def _emit_wait(
    context: DecisionContext, index: int, wait: Wait, *, due: float | None = None, detail: str = ""
) -> None:
    node_id = context.execution.graph.nodes[index].node.id
    nonce = context.inputs.nonce
    context.emit(NodeWaits(node=node_id, wait=wait, due=due, detail=detail, attempt=1, nonce=nonce))


def consume_signal(context: DecisionContext, index: int) -> None:
    """Completes a node that waits for a signal with the oldest signal of that name, if there is
    one.
    """
    execution = context.execution
    run = execution.nodes[index]
    for signal_id, (name, payload) in execution.signals.items():
        if name == run.detail:
            node_id = execution.graph.nodes[index].node.id
            context.emit(SignalConsumed(signal_id=signal_id, node=node_id))
            context.emit(NodeCompleted(node=node_id, output=payload))
            if run.due is not None:
                context.clear_timer(index, NO_ITEM, TimerKind.SIGNAL)
            context.queue_ready_children(index)
            return


def on_signal(context: DecisionContext, command: SendSignal) -> None:
    """Stores the signal until a node waits for it.

    Ignores a signal id that was already received.
    """
    execution = context.execution
    if execution.is_final or command.signal_id in execution.signal_ids:
        return
    context.emit(
        SignalReceived(signal_id=command.signal_id, name=command.name, payload=command.payload)
    )
    waiters = execution.signal_waiters.get(command.name)
    if waiters:
        consume_signal(context, waiters[0])


def end_wait(context: DecisionContext, index: int, run: NodeRun) -> None:
    """Ends a sleep, or a wait for a signal whose time limit has passed."""
    execution = context.execution
    compiled = execution.graph.nodes[index]
    if run.wait is Wait.SLEEP:
        slept = context.now - (run.started_at or context.now)
        context.emit(
            NodeCompleted(node=compiled.node.id, output=make_inline_value({"slept_seconds": slept}))
        )
        context.queue_ready_children(index)
    elif compiled.node.config.get("on_timeout") == "complete":
        context.emit(NodeCompleted(node=compiled.node.id, output=NULL))
        context.queue_ready_children(index)
    else:
        message = f"no signal '{run.detail}' arrived in time"
        fail_node(context, index, ErrorInfo(type="SignalTimeout", message=message, retryable=False))


def _start_child(context: DecisionContext, index: int, item: int, config: Json) -> None:
    execution = context.execution
    size, bytes_max = len(_encoder.encode(config)), context.inputs.policy.inline_bytes_max
    if size > bytes_max:
        message = f"the child's input has {size} bytes, at most {bytes_max} are allowed"
        error = ErrorInfo(type="ConfigError", message=message, retryable=False)
        fail_node(context, index, error, item=item)
        return
    run = execution.run(index, item) or PENDING_RUN
    ref = execution.ref(index, item)
    attempt = run.attempt + 1
    context.emit(
        NodeWaits(
            node=ref.node_id,
            item=item,
            wait=Wait.CHILD,
            detail=make_child_id(ref, attempt),
            attempt=attempt,
            nonce=context.inputs.nonce,
        )
    )
    send_create_child(context, index, item, config.get("input", {}))


def send_create_child(context: DecisionContext, index: int, item: int, child_input: Json) -> None:
    """Sends CreateExecution for a child, and sends it again after a takeover.

    Creating the same child twice has no effect.
    """
    execution = context.execution
    compiled = execution.graph.nodes[index]
    child, run = compiled.node.child, execution.run(index, item)
    if child is None or compiled.child_hash is None or run is None:
        return
    ref = NodeRef(execution.id, compiled.node.id, item)
    context.send(
        CreateExecution(
            execution_id=make_child_id(ref, run.attempt),
            workflow=child.name,
            definition=compiled.child_hash,
            version=execution.version,
            input=make_value_from_json(_encoder.encode(fill_defaults(child.input, child_input))),
            labels=execution.labels,
            priority=execution.priority,
            parent=execution.token(index, item, run),
            created_at=context.now,
        )
    )


def convert_child_result(command: ChildSettled) -> Value | ErrorInfo:
    """Returns the output or the error of a child.

    A failed child is not retried, because its nodes have had their own retries.
    """
    if command.state is ExecutionState.COMPLETED:
        return command.output or NULL
    cause = f": {command.error.message}" if command.error else ""
    return ErrorInfo(
        type="ChildFailed",
        message=f"child execution {command.child_id} is {command.state}{cause}"[:MESSAGE_CHARS_MAX],
        types=("ChildFailed",),
        retryable=False,
    )


def _parse_seconds(value: Json) -> float | None:
    return float(value) if is_number(value) and 0 <= value <= SECONDS_MAX else None


def _fail_bad_setting(context: DecisionContext, index: int, setting: str, value: Json) -> None:
    handler = context.execution.graph.nodes[index].node.handler
    expected = f"a text of 1 to {NAME_CHARS_MAX} characters"
    expected = expected if setting == "signal" else "a number of seconds"
    message = f"{handler}: '{setting}' is {preview_json(value)}, expected {expected}"
    fail_node(context, index, ErrorInfo(type="ConfigError", message=message, retryable=False))
