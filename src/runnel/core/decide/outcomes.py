"""Fails nodes, closes executions early, and ends executions with an outcome and an output."""

from collections import deque

import msgspec

from runnel.core.commands import CancelExecution, ChildSettled, OutputStored
from runnel.core.decide.decision_context import (
    TIMER_KIND_BY_WAIT,
    BlobNeededError,
    DecisionContext,
    ExecutionScope,
    make_error_info,
    request_blob,
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
    describe_closing,
)
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, NodeRef, format_node_name
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.core.templates.errors import TemplateError
from runnel.core.values import Json, Value, make_value_from_json


def close_execution(
    context: DecisionContext,
    outcome: ExecutionState,
    error: ErrorInfo | None,
    *,
    is_abrupt: bool = False,
) -> None:
    """Sets the outcome of the execution, cancels all unsettled nodes, and then starts clean-up
    nodes.

    With `is_abrupt`, clean-up nodes are cancelled too.
    """
    execution = context.execution
    context.emit(ExecutionClosing(outcome=outcome, error=error, is_abrupt=is_abrupt))
    cancel_unsettled_nodes(context)
    nodes = execution.graph.nodes
    agenda = context.agenda
    agenda.ready = deque(
        entry for entry in agenda.ready if nodes[entry[0]].is_clean_up and not is_abrupt
    )
    context.to_evaluate.extend(
        compiled.index
        for compiled in execution.graph.nodes
        if compiled.is_clean_up and not execution.unsettled_parents[compiled.index]
    )


def cancel_unsettled_nodes(context: DecisionContext) -> None:
    """Cancels every unsettled node. Spares clean-up nodes unless the execution ends abruptly."""
    execution = context.execution
    reason = describe_closing(execution.outcome, execution.closing_error)
    for compiled in execution.graph.nodes:
        is_spared = compiled.is_clean_up and not execution.is_abrupt
        if not is_spared and not execution.nodes[compiled.index].is_final:
            _cancel_node(context, compiled.index, reason)


def fail_node(
    context: DecisionContext, index: int, error: ErrorInfo, *, item: int = NO_ITEM
) -> None:
    """Settles the node as FAILED. A failed item fails its map and cancels the other items."""
    node_id = context.execution.graph.nodes[index].node.id
    if item != NO_ITEM:
        _fail_item(context, index, NodeFailed(node=node_id, item=item, error=error))
        return
    _settle_as_failed(context, index, error)


def _fail_item(context: DecisionContext, index: int, failed: NodeFailed) -> None:
    context.emit(failed)
    error = failed.error
    name = format_node_name(failed.node, failed.item)
    message = f"{name}: {error.message}"[:MESSAGE_CHARS_MAX]
    _settle_as_failed(
        context,
        index,
        ErrorInfo(type=error.type, message=message, types=error.types, traceback=error.traceback),
    )


def _settle_as_failed(context: DecisionContext, index: int, error: ErrorInfo) -> None:
    node_id = context.execution.graph.nodes[index].node.id
    stop_items(context, index, f"another item of '{node_id}' failed")
    context.emit(NodeFailed(node=node_id, error=error))
    context.queue_ready_children(index)


def fail_attempt(
    context: DecisionContext, index: int, run: NodeRun, failed: NodeFailed, *, diagnosis: str | None
) -> None:
    """Fails a node or item after its last attempt.

    If `diagnosis` is given, writes a dead letter.
    """
    if diagnosis is not None:
        _put_dead_letter(context, index, run, failed, diagnosis)
    context.release_limit(index, failed.item, run)
    if failed.item != NO_ITEM:
        _fail_item(context, index, failed)
        return
    context.emit(failed)
    context.queue_ready_children(index)


def stop_items(context: DecisionContext, index: int, reason: str) -> None:
    map_run = context.execution.maps.get(index)
    if map_run is None:
        return
    node_id = context.execution.graph.nodes[index].node.id
    for item, run in list(map_run.active.items()):
        _withdraw_attempt(context, index, item, run)
        context.emit(NodeCancelled(node=node_id, item=item, reason=reason))


def _cancel_node(context: DecisionContext, index: int, reason: str) -> None:
    execution = context.execution
    stop_items(context, index, reason)
    run = execution.nodes[index]
    if index not in execution.maps:
        _withdraw_attempt(context, index, NO_ITEM, run)
    context.emit(NodeCancelled(node=execution.graph.nodes[index].node.id, reason=reason))


def _withdraw_attempt(context: DecisionContext, index: int, item: int, run: NodeRun) -> None:
    """Drops the task, clears the timer, cancels the child and releases the key of an attempt, if
    the attempt has them.
    """
    if run.state in IN_FLIGHT_STATES:
        context.drop_task(index, item, run)
    if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
        context.clear_timer(index, item, TIMER_KIND_BY_WAIT[run.wait])
    if run.wait is Wait.CHILD:
        child = ExecutionId(run.detail)
        is_forced = context.execution.is_abrupt
        context.send(
            CancelExecution(execution_id=child, reason="parent closed", is_forced=is_forced)
        )
    context.release_limit(index, item, run)


def _put_dead_letter(
    context: DecisionContext, index: int, run: NodeRun, failed: NodeFailed, diagnosis: str
) -> None:
    compiled = context.execution.graph.nodes[index]
    override = context.execution.configs.get(index)
    letter = DeadLetter(
        token=context.execution.token(index, failed.item, run),
        queue=compiled.queue,
        handler=compiled.node.handler,
        config=compiled.config_raw if override is None else override.raw,
        error=failed.error,
        reason=diagnosis,
        rejected_at=context.now,
        workflow=context.execution.graph.workflow.name,
    )
    context.effects.append(PutDeadLetter(letter))


# -- the end of an execution -----------------------------------------------------------------

EXECUTION_NODE_ID = NodeId("")
FAILURES_SHOWN_MAX = 3
# The index that represents the execution's own output among the nodes that wait for a blob.
_OUTPUT_INDEX = -1

_encoder = msgspec.json.Encoder()


def finish_settled_execution(context: DecisionContext) -> None:
    """Ends an execution whose nodes are all settled.

    If no outcome is set yet, the states of the nodes determine the outcome.
    """
    execution = context.execution
    if execution.outcome is not None:
        end_execution(context, execution.outcome, error=execution.closing_error)
    elif execution.first_failed is not None:
        end_execution(context, ExecutionState.FAILED, error=_summarize_failures(execution))
    else:
        _complete_execution(context)


def end_execution(
    context: DecisionContext,
    state: ExecutionState,
    *,
    output: Value | None = None,
    error: ErrorInfo | None = None,
) -> None:
    execution = context.execution
    workflow = execution.graph.workflow
    if workflow.sla_seconds is not None and _has_missed_sla(context, workflow.sla_seconds):
        context.emit(SlaMissed(sla_s=workflow.sla_seconds))
    context.emit(ExecutionFinished(state=state, output=output, error=error))
    context.agenda.ready.clear()
    if workflow.timeout_seconds is not None:
        context.effects.append(ClearTimer(make_execution_timer_key(execution, TimerKind.TIMEOUT)))
    if workflow.sla_seconds is not None:
        context.effects.append(ClearTimer(make_execution_timer_key(execution, TimerKind.SLA)))
    notify_parent(context)


def _has_missed_sla(context: DecisionContext, sla_s: float) -> bool:
    """Returns True if the SLA is missed and no event has recorded that yet.

    If the SLA timer and the end are due at the same time, the end may be decided first.
    """
    execution = context.execution
    started_at = execution.started_at
    return (
        started_at is not None and not execution.is_sla_missed and context.now >= started_at + sla_s
    )


def notify_parent(context: DecisionContext) -> None:
    execution = context.execution
    if execution.parent is not None:
        context.send(
            ChildSettled(
                token=execution.parent,
                child_id=execution.id,
                state=execution.state,
                output=execution.output,
                error=execution.error,
            )
        )


def make_execution_timer_key(execution: Execution, kind: TimerKind) -> TimerKey:
    return TimerKey(execution.id, EXECUTION_NODE_ID, kind=kind)


def on_execution_output_stored(context: DecisionContext, command: OutputStored) -> None:
    if not context.execution.is_final and not context.execution.unsettled_count:
        end_execution(context, ExecutionState.COMPLETED, output=command.output)


def _complete_execution(context: DecisionContext) -> None:
    execution = context.execution
    if context.agenda.is_storing_output:
        return
    try:
        output = _build_output(context)
    except BlobNeededError as needed:
        request_blob(context, (_OUTPUT_INDEX, NO_ITEM), needed.key)
        return
    except TemplateError as error:
        end_execution(context, ExecutionState.FAILED, error=make_error_info(error))
        return
    if output.blob is None and output.size > context.inputs.policy.inline_bytes_max:
        context.agenda.is_storing_output = True
        ref = NodeRef(execution.id, EXECUTION_NODE_ID)
        key = f"{execution.id}/output/{context.inputs.nonce}"
        context.effects.append(StoreOutput(ref, key, [output]))
        return
    end_execution(context, ExecutionState.COMPLETED, output=output)


def _build_output(context: DecisionContext) -> Value:
    """Returns the output of the execution: the `output` template, or without a template the outputs
    of the leaf nodes.

    The output of a single leaf is returned unchanged. Several leaves give an object by node id.
    """
    execution = context.execution
    if execution.graph.workflow.output is not None:
        scope = ExecutionScope(execution, context.inputs.blobs, is_for_output=True)
        return make_value_from_json(_encoder.encode(execution.graph.output.resolve(scope)))
    if len(execution.graph.leaves) == 1:
        output = execution.nodes[execution.graph.leaves[0]].output
        return output or make_value_from_json(b"null")
    return make_value_from_json(_encoder.encode(_collect_leaf_outputs(context)))


def _collect_leaf_outputs(context: DecisionContext) -> dict[str, Json | msgspec.Raw]:
    execution = context.execution
    scope = ExecutionScope(execution, context.inputs.blobs)
    outputs: dict[str, Json | msgspec.Raw] = {}
    for index in execution.graph.leaves:
        run = execution.nodes[index]
        if run.state is NodeState.COMPLETED and run.output is not None:
            node_id = execution.graph.nodes[index].node.id
            is_inline = run.output.blob is None
            outputs[node_id] = run.output.data if is_inline else scope.lookup(node_id)
    return outputs


def _summarize_failures(execution: Execution) -> ErrorInfo:
    failed = [
        f"node '{compiled.node.id}' failed: {execution.nodes[compiled.index].error}"
        for compiled in execution.graph.nodes
        if execution.nodes[compiled.index].state is NodeState.FAILED
    ]
    shown = "; ".join(failed[:FAILURES_SHOWN_MAX])
    hidden_count = len(failed) - FAILURES_SHOWN_MAX
    more = f"; and {hidden_count} more" if hidden_count > 0 else ""
    return ErrorInfo(type="NodeFailed", message=shown[:MESSAGE_CHARS_MAX] + more)
