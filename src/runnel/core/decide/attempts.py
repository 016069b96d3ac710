"""Decides commands about one attempt, from workers, child executions, timers and concurrency
keys.
"""

from runnel.core.commands import (
    ChildSettled,
    LimitGranted,
    ReleaseLimit,
    TaskCompleted,
    TaskDeferred,
    TaskFailed,
    TaskLost,
    TaskSkipped,
    TaskStarted,
    TaskStopped,
    TimerFired,
)
from runnel.core.decide.decision_context import DecisionContext
from runnel.core.decide.maps import continue_map
from runnel.core.decide.outcomes import (
    close_execution,
    fail_attempt,
    note_code_ended,
    on_stop_timer,
)
from runnel.core.decide.readiness import make_ready
from runnel.core.decide.task_dispatch import queue_task
from runnel.core.decide.waits import convert_child_result, end_wait
from runnel.core.effects import TimerKind
from runnel.core.events import (
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NodeStarted,
    NodeWaits,
    RetryPlanned,
    SlaMissed,
    TaskWasLost,
    Wait,
)
from runnel.core.execution import NodeRun
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.core.retry import LOSSES_TOGETHER_MAX, ErrorInfo, compute_crash_delay
from runnel.core.run_when import SkipReason
from runnel.core.states import IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.core.values import Value


def on_task_started(context: DecisionContext, command: TaskStarted) -> None:
    current = context.find_current_run(command.token)
    if current is not None and current[1].state is NodeState.QUEUED:
        token = command.token
        context.emit(
            NodeStarted(
                node=token.node_id,
                item=token.item,
                worker=command.worker,
                started_at=command.started_at,
            )
        )


def on_task_completed(context: DecisionContext, command: TaskCompleted) -> None:
    current = _find_in_flight(context, command.token)
    if current is not None:
        completed = NodeCompleted(
            node=command.token.node_id,
            item=command.token.item,
            output=command.output,
            worker=command.worker,
            started_at=command.started_at,
            is_cached=command.is_cached,
            logs=command.logs,
        )
        _settle_attempt(context, *current, completed)


def on_task_skipped(context: DecisionContext, command: TaskSkipped) -> None:
    current = _find_in_flight(context, command.token)
    if current is not None:
        skipped = NodeSkipped(
            node=command.token.node_id,
            item=command.token.item,
            reason=SkipReason.BY_ITSELF,
            detail=command.reason,
            worker=command.worker,
            started_at=command.started_at,
            logs=command.logs,
        )
        _settle_attempt(context, *current, skipped)


def on_task_failed(context: DecisionContext, command: TaskFailed) -> None:
    current = _find_in_flight(context, command.token)
    if current is not None:
        failed = NodeFailed(
            node=command.token.node_id,
            item=command.token.item,
            error=command.error,
            worker=command.worker,
            started_at=command.started_at,
            logs=command.logs,
        )
        _retry_or_fail(context, *current, failed)


def on_child_settled(context: DecisionContext, command: ChildSettled) -> None:
    current = context.find_current_run(command.token)
    if current is None or current[1].wait is not Wait.CHILD:
        note_code_ended(context, command.token)
        return
    token = command.token
    result = convert_child_result(command)
    if isinstance(result, Value):
        completed = NodeCompleted(node=token.node_id, item=token.item, output=result)
        _settle_attempt(context, *current, completed)
    else:
        failed = NodeFailed(node=token.node_id, item=token.item, error=result)
        _retry_or_fail(context, *current, failed)


def on_task_lost(context: DecisionContext, command: TaskLost) -> None:
    """Issues a new attempt of a lost task.

    Fails the task if too many processes died while they held this task and no other, or if far too
    many died while they held this task and others.
    """
    current = _find_in_flight(context, command.token)
    if current is None:
        return
    index, lost_run = current
    token = command.token
    context.emit(
        TaskWasLost(
            node=token.node_id,
            item=token.item,
            reason=command.reason,
            was_started=command.was_started,
            was_alone=command.was_alone,
        )
    )
    context.drop_task(index, token.item, lost_run)
    run = context.execution.run(index, token.item) or lost_run
    if run.crashes > context.inputs.policy.crashes_max or run.losses_together > LOSSES_TOGETHER_MAX:
        failed = NodeFailed(node=token.node_id, item=token.item, error=_make_crash_loop_error(run))
        fail_attempt(context, index, run, failed, diagnosis="too many processes died with it")
        return
    context.release_limit(index, token.item, run)
    is_suspect = command.was_started and not command.was_alone
    delay = compute_crash_delay(run.losses, token) if is_suspect else 0.0
    if delay:
        due, count = context.now + delay, f"{run.losses} processes died while they held it"
        context.emit(
            NodeWaits(node=token.node_id, item=token.item, wait=Wait.CRASH, due=due, detail=count)
        )
        context.set_timer(index, token.item, TimerKind.RETRY, due=due, attempt=token.attempt)
        return
    if not run.key:
        queue_task(context, index, token.item, attempt=run.attempt + 1, nonce=context.inputs.nonce)
        return
    # The concurrency key of the lost task must be requested again, which may need a blob first.
    # Until the key is requested, the node waits for a slot. A new owner of the partition resumes
    # nodes in this state, and the node no longer occupies a slot itself.
    context.emit(NodeWaits(node=token.node_id, item=token.item, wait=Wait.SLOT))
    make_ready(context, index, token.item)


def on_task_stopped(context: DecisionContext, command: TaskStopped) -> None:
    """Ends the wait for the task's code.

    If the attempt is not cancelled, the owner died between the commit that stopped the task and
    the one that cancels its node. The task is lost then.
    """
    on_task_lost(context, TaskLost(token=command.token, reason="it was stopped"))


def on_task_deferred(context: DecisionContext, command: TaskDeferred) -> None:
    current = _find_in_flight(context, command.token)
    if current is None:
        return
    index, run = current
    token = command.token
    due = command.until if command.wait_s is None else context.now + command.wait_s
    context.release_limit(index, token.item, run)
    context.emit(
        NodeWaits(
            node=token.node_id,
            item=token.item,
            wait=Wait.RATE_LIMIT,
            due=due,
            detail=command.reason,
        )
    )
    context.set_timer(index, token.item, TimerKind.RATE_LIMIT, due=due, attempt=token.attempt)


def on_limit_granted(context: DecisionContext, command: LimitGranted) -> None:
    """Issues the task that waited for the key.

    Releases the key at once if the attempt has already finished.
    """
    current = context.find_current_run(command.holder)
    if current is None:
        context.send(ReleaseLimit(key=command.key, holder=command.holder))
        return
    index, run = current
    if run.wait is Wait.LIMIT and run.key == command.key:
        queue_task(
            context,
            index,
            command.holder.item,
            attempt=run.attempt,
            nonce=run.nonce,
            key=command.key,
        )


def on_timer_fired(context: DecisionContext, command: TimerFired) -> None:
    execution = context.execution
    if execution.is_final:
        return
    if command.kind == TimerKind.TIMEOUT:
        _time_out_execution(context)
        return
    if command.kind == TimerKind.STOP:
        on_stop_timer(context)
        return
    if command.kind == TimerKind.SLA:
        context.emit(SlaMissed(sla_s=execution.graph.workflow.sla_seconds or 0.0))
        return
    index = execution.graph.index.get(command.ref.node_id)
    run = None if index is None else execution.run(index, command.ref.item)
    if index is None or run is None or run.attempt != command.attempt:
        return
    if run.state is not NodeState.WAITING or run.wait is None:
        return
    if run.wait in (Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT):
        make_ready(context, index, command.ref.item)
    elif run.wait in (Wait.SLEEP, Wait.SIGNAL):
        end_wait(context, index, run)


def _find_in_flight(context: DecisionContext, token: TaskToken) -> tuple[int, NodeRun] | None:
    """Returns the node or item whose task has this token and is in flight.

    The token of a cancelled task shows that its code has ended.
    """
    current = context.find_current_run(token)
    if current is None and context.execution.stopping:
        note_code_ended(context, token)
    return current if current is not None and current[1].state in IN_FLIGHT_STATES else None


def _settle_attempt(
    context: DecisionContext, index: int, run: NodeRun, settled: NodeCompleted | NodeSkipped
) -> None:
    """Settles a node or item.

    A skipped item counts as settled too, so that its map can end.
    """
    context.release_limit(index, settled.item, run)
    context.emit(settled)
    if settled.item == NO_ITEM:
        context.queue_ready_children(index)
    else:
        continue_map(context, index)


def _retry_or_fail(context: DecisionContext, index: int, run: NodeRun, failed: NodeFailed) -> None:
    policy = context.execution.graph.nodes[index].node.retry
    if not policy.is_retryable(failed.error):
        fail_attempt(context, index, run, failed, diagnosis="the error is not retryable")
        return
    token = context.execution.token(index, failed.item, run)
    delay = policy.delay_after(run.failures + 1, token, delay_s_min=failed.error.retry_after_s)
    if delay is None:
        keeps = context.inputs.policy.keeps_exhausted_tasks
        diagnosis = "its retries are used up" if keeps else None
        fail_attempt(context, index, run, failed, diagnosis=diagnosis)
        return
    context.release_limit(index, failed.item, run)
    due = context.now + delay
    context.emit(
        RetryPlanned(
            node=failed.node,
            item=failed.item,
            error=failed.error,
            due=due,
            worker=failed.worker,
            started_at=failed.started_at,
            logs=failed.logs,
        )
    )
    context.set_timer(index, failed.item, TimerKind.RETRY, due=due, attempt=run.attempt)


def _make_crash_loop_error(run: NodeRun) -> ErrorInfo:
    message = f"{run.crashes} processes died while they held this task and no other task"
    if run.losses_together > LOSSES_TOGETHER_MAX:
        message = f"{run.losses_together} processes died while they held this task and other tasks"
    return ErrorInfo(type="CrashLoop", message=message, retryable=False)


def _time_out_execution(context: DecisionContext) -> None:
    limit = context.execution.graph.workflow.timeout_seconds
    if context.execution.outcome is None:
        message = f"the execution took longer than its timeout of {limit:g} s"
        close_execution(
            context, ExecutionState.FAILED, ErrorInfo(type="ExecutionTimeout", message=message)
        )
