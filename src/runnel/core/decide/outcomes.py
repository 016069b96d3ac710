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
    SetTimer,
    StoreOutput,
    TimerKey,
    TimerKind,
)
from runnel.core.events import (
    CodeEnded,
    ExecutionClosing,
    ExecutionFinished,
    NodeCancelled,
    NodeFailed,
    SlaMissed,
    Wait,
    describe_closing,
)
from runnel.core.execution import PENDING_RUN, Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, NodeRef, TaskToken, format_node_name
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
    is_awaited: bool = False,
) -> None:
    """Sets the outcome of the execution and cancels all unsettled nodes. Clean-up nodes start
    once the code of the cancelled nodes has ended.

    With `is_abrupt`, clean-up nodes are cancelled too. With `is_awaited`, the execution does not
    end before that code has ended, even if there is no clean-up node.
    """
    execution = context.execution
    context.emit(
        ExecutionClosing(outcome=outcome, error=error, is_abrupt=is_abrupt, is_awaited=is_awaited)
    )
    cancel_unsettled_nodes(context)
    nodes = execution.graph.nodes
    agenda = context.agenda
    agenda.ready = deque(
        entry for entry in agenda.ready if nodes[entry[0]].is_clean_up and not is_abrupt
    )
    if execution.stopping:
        # A clean-up node that was ready, but had no slot, is evaluated again later.
        agenda.ready = deque(
            entry
            for entry in agenda.ready
            if execution.nodes[entry[0]].state is not NodeState.PENDING
        )
    _queue_clean_up(context)


def _queue_clean_up(context: DecisionContext) -> None:
    execution = context.execution
    context.to_evaluate.extend(
        index for index in execution.graph.clean_up if not execution.unsettled_parents[index]
    )


def cancel_unsettled_nodes(context: DecisionContext) -> None:
    """Cancels every unsettled node. Spares clean-up nodes unless the execution ends abruptly."""
    execution = context.execution
    reason = describe_closing(execution.outcome, execution.closing_error)
    stop_due = _find_stop_due(context)
    for compiled in execution.graph.nodes:
        is_spared = compiled.is_clean_up and not execution.is_abrupt
        if not is_spared and not execution.nodes[compiled.index].is_final:
            _cancel_node(context, compiled.index, reason, stop_due=stop_due)
    if stop_due is not None and execution.stopping:
        _set_stop_timer(context)


# -- stopped code, whose end clean-up nodes wait for -------------------------------------------


def _find_stop_due(context: DecisionContext) -> float | None:
    """Returns the time limit for the end of code that is stopped now.

    Returns None if neither a clean-up node nor a parent waits for that end.
    """
    execution = context.execution
    if execution.is_abrupt:
        return None
    nodes = execution.nodes
    has_waiting = execution.is_awaited or any(
        not nodes[index].is_final for index in execution.graph.clean_up
    )
    return context.now + context.inputs.policy.stop_s_max if has_waiting else None


def note_code_ended(context: DecisionContext, token: TaskToken) -> None:
    """Records that the code of a cancelled attempt has ended.

    Does nothing if nothing waits for that attempt.
    """
    execution = context.execution
    index = execution.graph.index.get(token.node_id, -1)
    attempt = execution.stopping.get((index, token.item))
    if attempt is None or attempt.token != token or execution.is_final:
        return
    context.emit(CodeEnded(node=token.node_id, item=token.item))
    _release_clean_up(context)


def on_stop_timer(context: DecisionContext) -> None:
    """Ends the wait for code that has not ended within the time limit, such as a stuck thread.

    Child executions have no limit here: they limit their own tasks and end by themselves.
    """
    execution = context.execution
    if context.now < execution.stop_due:  # more code was stopped after the timer was set
        _set_stop_timer(context)
        return
    for attempt in list(execution.stopping.values()):
        if not attempt.child:
            token = attempt.token
            context.emit(CodeEnded(node=token.node_id, item=token.item, is_assumed=True))
    _release_clean_up(context)


def _set_stop_timer(context: DecisionContext) -> None:
    execution = context.execution
    key = make_execution_timer_key(execution, TimerKind.STOP)
    context.effects.append(SetTimer(key, execution.stop_due))


def resume_stops(context: DecisionContext) -> None:
    """Stops again what was stopped, because the store may have lost it."""
    execution = context.execution
    for attempt in execution.stopping.values():
        if attempt.child:
            _cancel_child(context, attempt.child, awaited_by=attempt.token)
        else:
            context.stop_task(attempt.token)
    if execution.stopping:
        _set_stop_timer(context)


def _release_clean_up(context: DecisionContext) -> None:
    """Starts the clean-up nodes if all stopped code has ended."""
    if not context.execution.stopping:
        key = make_execution_timer_key(context.execution, TimerKind.STOP)
        context.effects.append(ClearTimer(key))
        _queue_clean_up(context)


# -- failed and cancelled nodes ----------------------------------------------------------------


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
    stop_due = _find_stop_due(context)
    for item in list(map_run.active):
        _cancel_attempt(context, index, item, reason, stop_due=stop_due)
    if stop_due is not None and context.execution.stopping:
        _set_stop_timer(context)


def _cancel_node(
    context: DecisionContext, index: int, reason: str, *, stop_due: float | None
) -> None:
    execution = context.execution
    stop_items(context, index, reason)
    if index in execution.maps:
        context.emit(NodeCancelled(node=execution.graph.nodes[index].node.id, reason=reason))
    else:
        _cancel_attempt(context, index, NO_ITEM, reason, stop_due=stop_due)


def _cancel_attempt(
    context: DecisionContext, index: int, item: int, reason: str, *, stop_due: float | None
) -> None:
    """Cancels a node or item. Drops the task, clears the timer, cancels the child and releases
    the key of its attempt, if the attempt has them.
    """
    execution = context.execution
    run = execution.run(index, item) or PENDING_RUN
    is_task, is_child = run.state in IN_FLIGHT_STATES, run.wait is Wait.CHILD
    token = execution.token(index, item, run)
    if is_task and stop_due is not None:
        context.stop_task(token)
    elif is_task:
        context.drop_task(index, item, run)
    if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
        context.clear_timer(index, item, TIMER_KIND_BY_WAIT[run.wait])
    if is_child:
        _cancel_child(context, run.detail, awaited_by=None if stop_due is None else token)
    context.release_limit(index, item, run)
    due = stop_due if is_task or is_child else None
    node_id = execution.graph.nodes[index].node.id
    context.emit(NodeCancelled(node=node_id, item=item, reason=reason, stop_due=due))


def _cancel_child(context: DecisionContext, child: str, *, awaited_by: TaskToken | None) -> None:
    context.send(
        CancelExecution(
            execution_id=ExecutionId(child),
            reason="parent closed",
            is_forced=context.execution.is_abrupt,
            awaited_by=awaited_by,
        )
    )


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
    if execution.stopping:
        context.effects.append(ClearTimer(make_execution_timer_key(execution, TimerKind.STOP)))
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
