"""The handlers that never reach a worker: sleep, wait_for_signal and child workflows."""

import msgspec

from runnel.core.commands import ChildSettled, CreateExecution, SendSignal
from runnel.core.decide.ending import fail_node
from runnel.core.decide.turn import NAME_CHARS_MAX, Turn, evaluate, shown
from runnel.core.effects import TimerKind
from runnel.core.events import NodeCompleted, NodeWaits, SignalConsumed, SignalReceived, Wait
from runnel.core.execution import PENDING, NodeRun
from runnel.core.ids import NO_ITEM, Ref, child_id
from runnel.core.states import ExecutionState
from runnel.core.values import NULL, Json, Value, from_bytes, inline
from runnel.core.workflow import CHILD_WORKFLOW, MESSAGE_CHARS_MAX, SLEEP, ErrorInfo

# About three centuries: a longer wait is a mistake in the unit.
SECONDS_MAX = 1e10

_encoder = msgspec.json.Encoder()


def begin_core_handler(turn: Turn, index: int, item: int = NO_ITEM) -> None:
    """Resolves the config here, because no worker will; a bad value fails the node."""
    compiled = turn.execution.graph.nodes[index]
    found = evaluate(turn, index, compiled.config, item=item)
    if found is None:
        return
    if isinstance(found, ErrorInfo):
        fail_node(turn, index, found, item=item)
    elif compiled.node.handler == SLEEP:
        _sleep(turn, index, found.value)
    elif compiled.node.handler == CHILD_WORKFLOW:
        _start_child(turn, index, item, found.value)
    else:
        _wait_for_signal(turn, index, found.value)


def _sleep(turn: Turn, index: int, config: Json) -> None:
    seconds = _seconds(config.get("seconds"))
    if seconds is None:
        _refuse(turn, index, "seconds", config.get("seconds"))
        return
    due = turn.now + seconds
    _wait(turn, index, Wait.SLEEP, due=due)
    turn.set_timer(index, NO_ITEM, TimerKind.SLEEP, due=due, attempt=1)


def _wait_for_signal(turn: Turn, index: int, config: Json) -> None:
    name, limit = config.get("signal"), config.get("timeout_seconds")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        _refuse(turn, index, "signal", name)
        return
    seconds = None if limit is None else _seconds(limit)
    if limit is not None and seconds is None:
        _refuse(turn, index, "timeout_seconds", limit)
        return
    due = None if seconds is None else turn.now + seconds
    _wait(turn, index, Wait.SIGNAL, due=due, detail=name)
    if due is not None:
        turn.set_timer(index, NO_ITEM, TimerKind.SIGNAL, due=due, attempt=1)
    take_signal(turn, index)


def _wait(
    turn: Turn, index: int, wait: Wait, *, due: float | None = None, detail: str = ""
) -> None:
    node_id = turn.execution.graph.nodes[index].node.id
    nonce = turn.moment.nonce
    turn.emit(NodeWaits(node=node_id, wait=wait, due=due, detail=detail, attempt=1, nonce=nonce))


def take_signal(turn: Turn, index: int) -> None:
    """Completes a waiting node by the oldest signal of its name, if one is there."""
    execution = turn.execution
    run = execution.nodes[index]
    for signal_id, (name, payload) in execution.signals.items():
        if name == run.detail:
            node_id = execution.graph.nodes[index].node.id
            turn.emit(SignalConsumed(signal_id=signal_id, node=node_id))
            turn.emit(NodeCompleted(node=node_id, output=payload))
            if run.due is not None:
                turn.clear_timer(index, NO_ITEM, TimerKind.SIGNAL)
            turn.settled(index)
            return


def on_signal(turn: Turn, command: SendSignal) -> None:
    """Kept until a node waits for it; the same signal id is taken once."""
    execution = turn.execution
    if execution.is_final or command.signal_id in execution.signal_ids:
        return
    turn.emit(
        SignalReceived(signal_id=command.signal_id, name=command.name, payload=command.payload)
    )
    waiters = execution.waiting_for.get(command.name)
    if waiters:
        take_signal(turn, waiters[0])


def end_wait(turn: Turn, index: int, run: NodeRun) -> None:
    """The timer of a sleep or of a signal's time limit has fired."""
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    if run.wait is Wait.SLEEP:
        slept = turn.now - (run.started_at or turn.now)
        turn.emit(NodeCompleted(node=compiled.node.id, output=inline({"slept_seconds": slept})))
        turn.settled(index)
    elif compiled.node.config.get("on_timeout") == "complete":
        turn.emit(NodeCompleted(node=compiled.node.id, output=NULL))
        turn.settled(index)
    else:
        message = f"no signal '{run.detail}' came in time"
        fail_node(turn, index, ErrorInfo(type="SignalTimeout", message=message, retryable=False))


def _start_child(turn: Turn, index: int, item: int, config: Json) -> None:
    execution = turn.execution
    size, most = len(_encoder.encode(config)), turn.moment.policy.inline_bytes_max
    if size > most:
        message = f"the child's input has {size} bytes, at most {most} are allowed"
        error = ErrorInfo(type="ConfigError", message=message, retryable=False)
        fail_node(turn, index, error, item=item)
        return
    run = execution.run(index, item) or PENDING
    ref = execution.ref(index, item)
    attempt = run.attempt + 1
    turn.emit(
        NodeWaits(
            node=ref.node_id,
            item=item,
            wait=Wait.CHILD,
            detail=child_id(ref, attempt),
            attempt=attempt,
            nonce=turn.moment.nonce,
        )
    )
    tell_child(turn, index, item, config.get("input", {}))


def tell_child(turn: Turn, index: int, item: int, child_input: Json) -> None:
    """Also sent again after a takeover: making the same child twice is making it once."""
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    child, run = compiled.node.child, execution.run(index, item)
    if child is None or compiled.child_hash is None or run is None:
        return
    ref = Ref(execution.id, compiled.node.id, item)
    turn.tell(
        CreateExecution(
            execution_id=child_id(ref, run.attempt),
            workflow=child.name,
            definition=compiled.child_hash,
            version=execution.version,
            input=from_bytes(_encoder.encode(child_input)),
            labels=execution.labels,
            parent=execution.token(index, item, run),
            created_at=turn.now,
        )
    )


def child_result(command: ChildSettled) -> Value | ErrorInfo:
    """A child's failure is not retried by default: its own nodes have been."""
    if command.state is ExecutionState.COMPLETED:
        return command.output or NULL
    cause = f": {command.error.message}" if command.error else ""
    return ErrorInfo(
        type="ChildFailed",
        message=f"child execution {command.child_id} is {command.state}{cause}"[:MESSAGE_CHARS_MAX],
        types=("ChildFailed",),
        retryable=False,
    )


def _seconds(value: Json) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= SECONDS_MAX else None


def _refuse(turn: Turn, index: int, setting: str, found: Json) -> None:
    handler = turn.execution.graph.nodes[index].node.handler
    wanted = f"a text of 1 to {NAME_CHARS_MAX} characters"
    wanted = wanted if setting == "signal" else "a number of seconds"
    message = f"{handler}: '{setting}' is {shown(found)}, expected {wanted}"
    fail_node(turn, index, ErrorInfo(type="ConfigError", message=message, retryable=False))
