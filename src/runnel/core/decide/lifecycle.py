"""Starts, cancels, fails and resumes executions."""

from runnel.core.commands import (
    AcquireLimit,
    CancelExecution,
    CreateExecution,
    FailExecution,
    StartExecution,
    TakeOver,
    ValuesShared,
)
from runnel.core.decide.decision_context import (
    TIMER_KIND_BY_WAIT,
    DecisionContext,
    EvaluatedValue,
    evaluate_template,
)
from runnel.core.decide.maps import continue_map
from runnel.core.decide.outcomes import (
    cancel_unsettled_nodes,
    close_execution,
    end_execution,
    make_execution_timer_key,
    notify_parent,
    resume_stops,
)
from runnel.core.decide.readiness import make_ready
from runnel.core.decide.waits import consume_signal, send_create_child
from runnel.core.effects import SetTimer, TimerKind
from runnel.core.events import ExecutionStarted, NodesTaken, Wait
from runnel.core.execution import NodeRun
from runnel.core.ids import NO_ITEM
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState, NodeState


def on_create(context: DecisionContext, command: CreateExecution) -> None:
    """Starts a new execution unless it `is_held`.

    For an existing execution, derives lost effects again.

    A creation is repeated if a parent sends it again after a takeover, or if its decision was split
    between two commits.
    """
    execution = context.execution
    if execution.is_final:
        notify_parent(context)
    elif execution.state is ExecutionState.RUNNING:
        on_resume(context)
    elif not command.is_held:
        _start_execution(context, ExecutionStarted())


def on_take_over(context: DecisionContext, command: TakeOver) -> None:
    """Records the results that a rerun reuses, before the execution starts.

    A repeated or late command changes nothing.
    """
    execution = context.execution
    if execution.state is not ExecutionState.PENDING or command.part in execution.reused_parts:
        return
    context.emit(NodesTaken(part=command.part, taken=command.taken, configs=command.configs))


def on_start(context: DecisionContext, command: StartExecution) -> None:
    execution = context.execution
    has_all_parts = len(execution.reused_parts) >= command.parts
    if execution.state is ExecutionState.PENDING and has_all_parts:
        _start_execution(context, ExecutionStarted(input=command.input, key=command.key))


def _start_execution(context: DecisionContext, event: ExecutionStarted) -> None:
    context.emit(event)
    _set_execution_timers(context)
    execution = context.execution
    if execution.unsettled_count == len(execution.graph):
        context.to_evaluate.extend(execution.graph.roots)
    else:  # a rerun starts at the nodes after its reused results
        context.to_evaluate.extend(
            index for index, unsettled in enumerate(execution.unsettled_parents) if not unsettled
        )


def on_cancel(context: DecisionContext, command: CancelExecution) -> None:
    """Cancels the execution.

    A repeated cancellation has no effect, and neither has one after the outcome is set, unless
    `is_forced`.
    """
    execution = context.execution
    is_closing = execution.outcome is not None
    if execution.is_final and command.awaited_by is not None:
        notify_parent(context)
    if execution.is_final or (is_closing and not command.is_forced):
        return
    close_execution(
        context,
        ExecutionState.CANCELLED,
        ErrorInfo(type="Cancelled", message=command.reason, retryable=False),
        is_abrupt=command.is_forced,
        is_awaited=command.awaited_by is not None,
    )
    if execution.state is ExecutionState.PENDING:
        end_execution(context, ExecutionState.CANCELLED, error=execution.closing_error)


def on_fail(context: DecisionContext, command: FailExecution) -> None:
    """Fails the execution after its decision raised an error.

    Nothing more runs, not even clean-up nodes.
    """
    if context.execution.is_final:
        return
    close_execution(context, ExecutionState.FAILED, command.error, is_abrupt=True)
    end_execution(context, ExecutionState.FAILED, error=command.error)


def on_resume(context: DecisionContext) -> None:
    """Derives again all effects that a rollback of the store or a half-written decision may have
    lost.

    Resuming twice is harmless: timers have keys, and concurrency keys and children are requested
    with the same token. Resuming does not change tasks in flight. The engine finds lost tasks by
    querying the store.
    """
    execution = context.execution
    if execution.is_final:
        notify_parent(context)
        return
    if execution.state is ExecutionState.PENDING:
        return
    context.agenda.reset()
    _set_execution_timers(context)
    resume_stops(context)
    if execution.outcome is not None:
        cancel_unsettled_nodes(context)
    for index in range(len(execution.nodes)):
        _resume_node(context, index)


def on_values_shared(context: DecisionContext, command: ValuesShared) -> None:
    agenda = context.agenda
    agenda.offloaded_values.update(command.values)
    for name in command.values:
        agenda.pending_offloads.pop(name, None)
    on_blob_loaded(context)


def on_blob_loaded(context: DecisionContext) -> None:
    """Evaluates again every node or item that waited for a blob."""
    execution, agenda = context.execution, context.agenda
    waiting, agenda.awaited_blobs = agenda.awaited_blobs, {}
    if execution.is_final:
        return
    for index, item in waiting:
        run = None if index < 0 else execution.run(index, item)
        if run is None and index in execution.maps:
            agenda.get_map(index).is_queued = False
            continue_map(context, index)
        elif run is not None and run.state is NodeState.PENDING:
            context.to_evaluate.append(index)
        elif run is not None and run.wait is Wait.CHILD:
            _resume_wait(context, index, item, run)
        elif run is not None and not run.is_final:
            make_ready(context, index, item)


def _set_execution_timers(context: DecisionContext) -> None:
    execution = context.execution
    workflow = execution.graph.workflow
    started_at = execution.started_at or context.now
    if workflow.timeout_seconds is not None and execution.outcome is None:
        key = make_execution_timer_key(execution, TimerKind.TIMEOUT)
        context.effects.append(SetTimer(key, started_at + workflow.timeout_seconds))
    if workflow.sla_seconds is not None and not execution.is_sla_missed:
        key = make_execution_timer_key(execution, TimerKind.SLA)
        context.effects.append(SetTimer(key, started_at + workflow.sla_seconds))


def _resume_node(context: DecisionContext, index: int) -> None:
    execution = context.execution
    run = execution.nodes[index]
    if run.state is NodeState.PENDING and not execution.unsettled_parents[index]:
        context.to_evaluate.append(index)
    elif run.state is NodeState.WAITING:
        _resume_wait(context, index, NO_ITEM, run)
    elif run.state is NodeState.RUNNING and index in execution.maps:
        for item, item_run in list(execution.maps[index].active.items()):
            if item_run.state is NodeState.WAITING:
                _resume_wait(context, index, item, item_run)
        continue_map(context, index)


def _resume_wait(context: DecisionContext, index: int, item: int, run: NodeRun) -> None:
    execution = context.execution
    if run.wait in TIMER_KIND_BY_WAIT and run.due is not None:
        context.set_timer(
            index, item, TIMER_KIND_BY_WAIT[run.wait], due=run.due, attempt=run.attempt
        )
    if run.wait is Wait.SLOT:
        context.agenda.ready.append((index, item))
    elif run.wait is Wait.SIGNAL:
        consume_signal(context, index)
    elif run.wait is Wait.LIMIT:
        limit = execution.graph.nodes[index].node.concurrency_limit
        holder = execution.token(index, item, run)
        context.send(AcquireLimit(key=run.key, limit=limit, holder=holder))
    elif run.wait is Wait.CHILD:
        evaluated = evaluate_template(
            context, index, execution.graph.nodes[index].config, item=item
        )
        if isinstance(evaluated, EvaluatedValue):
            send_create_child(context, index, item, evaluated.value.get("input", {}))
