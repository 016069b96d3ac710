"""Failing nodes, and ending executions before their graph is done."""

from collections import deque

import msgspec

from runnel.core.commands import CancelExecution, ChildSettled, OutputStored
from runnel.core.decide.turn import (
    TIMER_OF_WAIT,
    BlobNeededError,
    ExecutionScope,
    Turn,
    await_blob,
    error_of,
)
from runnel.core.effects import (
    ClearTimer,
    DeadLetter,
    PutDeadLetter,
    StoreOutput,
    TimerKey,
    TimerKind,
)
from runnel.core.events import (
    ExecutionClosing,
    ExecutionFinished,
    NodeCancelled,
    NodeFailed,
    SlaMissed,
    Wait,
)
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Ref
from runnel.core.states import IN_FLIGHT, ExecutionState, NodeState
from runnel.core.templates.errors import TemplateError
from runnel.core.values import Json, Value, from_bytes
from runnel.core.workflow import MESSAGE_CHARS_MAX, ErrorInfo


def close(
    turn: Turn, outcome: ExecutionState, error: ErrorInfo | None, *, is_abrupt: bool = False
) -> None:
    """Decides the outcome: what runs or waits is cancelled, clean-up nodes follow."""
    execution = turn.execution
    turn.emit(ExecutionClosing(outcome=outcome, error=error, is_abrupt=is_abrupt))
    cancel_rest(turn)
    nodes = execution.graph.nodes
    execution.ready = deque(
        entry for entry in execution.ready if nodes[entry[0]].is_clean_up and not is_abrupt
    )
    turn.to_evaluate.extend(
        compiled.index
        for compiled in execution.graph.nodes
        if compiled.is_clean_up and not execution.unsettled[compiled.index]
    )


def cancel_rest(turn: Turn) -> None:
    """Cancels every unsettled node that a closing execution does not spare."""
    execution = turn.execution
    reason = str(execution.closing_error or execution.outcome)
    for compiled in execution.graph.nodes:
        is_spared = compiled.is_clean_up and not execution.is_abrupt
        if not is_spared and not execution.nodes[compiled.index].is_final:
            _cancel_node(turn, compiled.index, reason)


def fail_node(turn: Turn, index: int, error: ErrorInfo, *, item: int = NO_ITEM) -> None:
    """Settles the node as FAILED; a failed item fails its map, and stops the other items."""
    node_id = turn.execution.graph.nodes[index].node.id
    if item != NO_ITEM:
        _fail_item(turn, index, NodeFailed(node=node_id, item=item, error=error))
        return
    _fail(turn, index, error)


def _fail_item(turn: Turn, index: int, failed: NodeFailed) -> None:
    turn.emit(failed)
    error = failed.error
    message = f"item {failed.item}: {error.message}"[:MESSAGE_CHARS_MAX]
    _fail(turn, index, ErrorInfo(type=error.type, message=message, types=error.types))


def _fail(turn: Turn, index: int, error: ErrorInfo) -> None:
    node_id = turn.execution.graph.nodes[index].node.id
    stop_items(turn, index, f"another item of '{node_id}' failed")
    turn.emit(NodeFailed(node=node_id, error=error))
    turn.settled(index)


def fail_attempt(
    turn: Turn, index: int, run: NodeRun, failed: NodeFailed, *, diagnosis: str | None
) -> None:
    """Fails the node by what its last task reported; `diagnosis` sends it to the dead letters."""
    if diagnosis is not None:
        _put_dead_letter(turn, index, run, failed, diagnosis)
    turn.release(index, failed.item, run)
    if failed.item != NO_ITEM:
        _fail_item(turn, index, failed)
        return
    turn.emit(failed)
    turn.settled(index)


def stop_items(turn: Turn, index: int, reason: str) -> None:
    found = turn.execution.maps.get(index)
    if found is None:
        return
    node_id = turn.execution.graph.nodes[index].node.id
    for item, run in list(found.active.items()):
        _stop(turn, index, item, run)
        turn.emit(NodeCancelled(node=node_id, item=item, reason=reason))


def _cancel_node(turn: Turn, index: int, reason: str) -> None:
    execution = turn.execution
    stop_items(turn, index, reason)
    run = execution.nodes[index]
    if index not in execution.maps:
        _stop(turn, index, NO_ITEM, run)
    turn.emit(NodeCancelled(node=execution.graph.nodes[index].node.id, reason=reason))


def _stop(turn: Turn, index: int, item: int, run: NodeRun) -> None:
    """Takes back whatever is under way for this attempt: task, timer, key or child."""
    if run.state in IN_FLIGHT:
        turn.drop(index, item, run)
    if run.wait in TIMER_OF_WAIT and run.due is not None:
        turn.clear_timer(index, item, TIMER_OF_WAIT[run.wait])
    if run.wait is Wait.CHILD:
        child = ExecutionId(run.detail)
        is_forced = turn.execution.is_abrupt
        turn.tell(CancelExecution(execution_id=child, reason="parent closed", is_forced=is_forced))
    turn.release(index, item, run)


def _put_dead_letter(
    turn: Turn, index: int, run: NodeRun, failed: NodeFailed, diagnosis: str
) -> None:
    compiled = turn.execution.graph.nodes[index]
    given = turn.execution.configs.get(index)
    letter = DeadLetter(
        token=turn.execution.token(index, failed.item, run),
        queue=compiled.queue,
        handler=compiled.node.handler,
        config=compiled.config_raw if given is None else given.raw,
        error=failed.error,
        reason=diagnosis,
        rejected_at=turn.now,
        workflow=turn.execution.graph.workflow.name,
    )
    turn.effects.append(PutDeadLetter(letter))


# The end of an execution: its outcome, its output, and word to its parent.

EXECUTION_NODE = NodeId("")
FAILURES_SHOWN = 3
# Stands for "the execution's own output" among the nodes that wait for a blob.
_OUTPUT = -1

_encoder = msgspec.json.Encoder()


def finish(turn: Turn) -> None:
    """Every node is settled: the outcome follows from them, unless it was decided before."""
    execution = turn.execution
    if execution.outcome is not None:
        end(turn, execution.outcome, error=execution.closing_error)
    elif execution.first_failed is not None:
        end(turn, ExecutionState.FAILED, error=_failures(execution))
    else:
        _complete(turn)


def end(
    turn: Turn,
    state: ExecutionState,
    *,
    output: Value | None = None,
    error: ErrorInfo | None = None,
) -> None:
    execution = turn.execution
    workflow = execution.graph.workflow
    if workflow.sla_seconds is not None and _is_late(turn, workflow.sla_seconds):
        turn.emit(SlaMissed(sla_s=workflow.sla_seconds))
    turn.emit(ExecutionFinished(state=state, output=output, error=error))
    if workflow.timeout_seconds is not None:
        turn.effects.append(ClearTimer(execution_timer(execution, TimerKind.TIMEOUT)))
    if workflow.sla_seconds is not None:
        turn.effects.append(ClearTimer(execution_timer(execution, TimerKind.SLA)))
    tell_parent(turn)


def _is_late(turn: Turn, sla_s: float) -> bool:
    """Too late, and not noted yet: its timer comes after what ends it, if both were waited for."""
    execution = turn.execution
    started_at = execution.started_at
    return started_at is not None and not execution.is_sla_missed and turn.now >= started_at + sla_s


def tell_parent(turn: Turn) -> None:
    execution = turn.execution
    if execution.parent is not None:
        turn.tell(
            ChildSettled(
                token=execution.parent,
                child_id=execution.id,
                state=execution.state,
                output=execution.output,
                error=execution.error,
            )
        )


def execution_timer(execution: Execution, kind: TimerKind) -> TimerKey:
    return TimerKey(execution.id, EXECUTION_NODE, kind=kind)


def on_execution_output_stored(turn: Turn, command: OutputStored) -> None:
    if not turn.execution.is_final and not turn.execution.remaining:
        end(turn, ExecutionState.COMPLETED, output=command.output)


def _complete(turn: Turn) -> None:
    execution = turn.execution
    if execution.is_storing_output:
        return
    try:
        output = _output(turn)
    except BlobNeededError as needed:
        await_blob(turn, (_OUTPUT, NO_ITEM), needed.key)
        return
    except TemplateError as error:
        end(turn, ExecutionState.FAILED, error=error_of(error))
        return
    if output.blob is None and output.size > turn.moment.policy.inline_bytes_max:
        execution.is_storing_output = True
        ref = Ref(execution.id, EXECUTION_NODE)
        key = f"{execution.id}/output/{turn.moment.nonce}"
        turn.effects.append(StoreOutput(ref, key, [output]))
        return
    end(turn, ExecutionState.COMPLETED, output=output)


def _output(turn: Turn) -> Value:
    """The `output` template; without one, what the last nodes gave: alone as it is, or by id."""
    execution = turn.execution
    if execution.graph.workflow.output is not None:
        scope = ExecutionScope(execution, turn.moment.values)
        return from_bytes(_encoder.encode(execution.graph.output.resolve(scope)))
    if len(execution.graph.leaves) == 1:
        alone = execution.nodes[execution.graph.leaves[0]].output
        return alone or from_bytes(b"null")
    return from_bytes(_encoder.encode(_leaves(turn)))


def _leaves(turn: Turn) -> dict[str, Json | msgspec.Raw]:
    execution = turn.execution
    scope = ExecutionScope(execution, turn.moment.values)
    outputs: dict[str, Json | msgspec.Raw] = {}
    for index in execution.graph.leaves:
        run = execution.nodes[index]
        if run.state is NodeState.COMPLETED and run.output is not None:
            node_id = execution.graph.nodes[index].node.id
            is_inline = run.output.blob is None
            outputs[node_id] = run.output.data if is_inline else scope.lookup(node_id)
    return outputs


def _failures(execution: Execution) -> ErrorInfo:
    failed = [
        f"node '{compiled.node.id}' failed: {execution.nodes[compiled.index].error}"
        for compiled in execution.graph.nodes
        if execution.nodes[compiled.index].state is NodeState.FAILED
    ]
    shown = "; ".join(failed[:FAILURES_SHOWN])
    rest = len(failed) - FAILURES_SHOWN
    more = f"; and {rest} more" if rest > 0 else ""
    return ErrorInfo(type="NodeFailed", message=shown[:MESSAGE_CHARS_MAX] + more)
