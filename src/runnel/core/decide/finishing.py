"""The end of an execution: its outcome, its output, and word to its parent."""

import msgspec

from runnel.core.commands import ChildSettled, OutputStored
from runnel.core.decide.evaluating import await_blob, error_of
from runnel.core.decide.turn import Turn
from runnel.core.effects import ClearTimer, StoreOutput, TimerKey, TimerKind
from runnel.core.events import ExecutionFinished, SlaMissed
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, NodeId, Ref
from runnel.core.json_types import Json
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.scope import BlobNeededError, ExecutionScope
from runnel.core.states import ExecutionState, NodeState
from runnel.core.templates import TemplateError
from runnel.core.values import Value, from_bytes

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
