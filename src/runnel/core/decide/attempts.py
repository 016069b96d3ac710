"""What workers, timers and the writers of concurrency keys say about one attempt."""

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
    TimerFired,
)
from runnel.core.decide.ending import close, fail_attempt
from runnel.core.decide.issue import queue_task
from runnel.core.decide.maps import continue_map
from runnel.core.decide.readiness import make_ready
from runnel.core.decide.turn import Turn
from runnel.core.decide.waits import child_result, end_wait
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
from runnel.core.ids import NO_ITEM, Token
from runnel.core.states import IN_FLIGHT, ExecutionState, NodeState
from runnel.core.values import Value
from runnel.core.workflow import ErrorInfo, SkipReason, delay_after_crash


def on_task_started(turn: Turn, command: TaskStarted) -> None:
    found = turn.current(command.token)
    if found is not None and found[1].state is NodeState.QUEUED:
        token = command.token
        turn.emit(
            NodeStarted(
                node=token.node_id,
                item=token.item,
                worker=command.worker,
                started_at=command.started_at,
            )
        )


def on_task_completed(turn: Turn, command: TaskCompleted) -> None:
    found = _in_flight(turn, command.token)
    if found is not None:
        completed = NodeCompleted(
            node=command.token.node_id,
            item=command.token.item,
            output=command.output,
            worker=command.worker,
            started_at=command.started_at,
            is_cached=command.is_cached,
            logs=command.logs,
        )
        _complete(turn, *found, completed)


def on_task_skipped(turn: Turn, command: TaskSkipped) -> None:
    found = _in_flight(turn, command.token)
    if found is not None:
        skipped = NodeSkipped(
            node=command.token.node_id,
            item=command.token.item,
            reason=SkipReason.BY_ITSELF,
            detail=command.reason,
            worker=command.worker,
            started_at=command.started_at,
            logs=command.logs,
        )
        _complete(turn, *found, skipped)


def on_task_failed(turn: Turn, command: TaskFailed) -> None:
    found = _in_flight(turn, command.token)
    if found is not None:
        failed = NodeFailed(
            node=command.token.node_id,
            item=command.token.item,
            error=command.error,
            worker=command.worker,
            started_at=command.started_at,
            logs=command.logs,
        )
        _retry_or_fail(turn, *found, failed)


def on_child_settled(turn: Turn, command: ChildSettled) -> None:
    found = turn.current(command.token)
    if found is None or found[1].wait is not Wait.CHILD:
        return
    token = command.token
    result = child_result(command)
    if isinstance(result, Value):
        completed = NodeCompleted(node=token.node_id, item=token.item, output=result)
        _complete(turn, *found, completed)
    else:
        failed = NodeFailed(node=token.node_id, item=token.item, error=result)
        _retry_or_fail(turn, *found, failed)


def on_task_lost(turn: Turn, command: TaskLost) -> None:
    """Nobody has this attempt any more: a new one is issued, unless it keeps killing workers."""
    found = _in_flight(turn, command.token)
    if found is None:
        return
    index, _ = found
    token = command.token
    turn.emit(
        TaskWasLost(
            node=token.node_id,
            item=token.item,
            reason=command.reason,
            was_started=command.was_started,
        )
    )
    turn.drop(index, token.item, found[1])
    run = turn.execution.run(index, token.item) or found[1]
    if run.losses > turn.moment.policy.losses_max:
        failed = NodeFailed(node=token.node_id, item=token.item, error=_crash_loop(run))
        fail_attempt(turn, index, run, failed, diagnosis="it kept killing its workers")
        return
    turn.release(index, token.item, run)
    delay = delay_after_crash(run.losses, token) if command.was_started else 0.0
    if delay:
        due, count = turn.now + delay, f"{run.losses} processes died with it"
        turn.emit(
            NodeWaits(node=token.node_id, item=token.item, wait=Wait.CRASH, due=due, detail=count)
        )
        turn.set_timer(index, token.item, TimerKind.RETRY, due=due, attempt=token.attempt)
        return
    if not run.key:
        queue_task(turn, index, token.item, attempt=run.attempt + 1, nonce=turn.moment.nonce)
        return
    # Its key has to be asked for again, which may need a blob first: a state of its own, so that
    # a takeover in between finds it, and so that it does not wait for its own slot.
    turn.emit(NodeWaits(node=token.node_id, item=token.item, wait=Wait.SLOT))
    make_ready(turn, index, token.item)


def on_task_deferred(turn: Turn, command: TaskDeferred) -> None:
    found = _in_flight(turn, command.token)
    if found is None:
        return
    index, run = found
    token = command.token
    due = command.until if command.wait_s is None else turn.now + command.wait_s
    turn.release(index, token.item, run)
    turn.emit(
        NodeWaits(
            node=token.node_id,
            item=token.item,
            wait=Wait.RATE_LIMIT,
            due=due,
            detail=command.reason,
        )
    )
    turn.set_timer(index, token.item, TimerKind.RATE_LIMIT, due=due, attempt=token.attempt)


def on_limit_granted(turn: Turn, command: LimitGranted) -> None:
    """A grant for an attempt that is over is given back, or its place would be lost."""
    found = turn.current(command.holder)
    if found is None:
        turn.tell(ReleaseLimit(key=command.key, holder=command.holder))
        return
    index, run = found
    if run.wait is Wait.LIMIT and run.key == command.key:
        queue_task(
            turn,
            index,
            command.holder.item,
            attempt=run.attempt,
            nonce=run.nonce,
            key=command.key,
        )


def on_timer_fired(turn: Turn, command: TimerFired) -> None:
    execution = turn.execution
    if execution.is_final:
        return
    if command.kind == TimerKind.TIMEOUT:
        _time_out(turn)
        return
    if command.kind == TimerKind.SLA:
        turn.emit(SlaMissed(sla_s=execution.graph.workflow.sla_seconds or 0.0))
        return
    index = execution.graph.index.get(command.ref.node_id)
    run = None if index is None else execution.run(index, command.ref.item)
    if index is None or run is None or run.attempt != command.attempt:
        return
    if run.state is not NodeState.WAITING or run.wait is None:
        return
    if run.wait in (Wait.RETRY, Wait.CRASH, Wait.RATE_LIMIT):
        make_ready(turn, index, command.ref.item)
    elif run.wait in (Wait.SLEEP, Wait.SIGNAL):
        end_wait(turn, index, run)


def _in_flight(turn: Turn, token: Token) -> tuple[int, NodeRun] | None:
    found = turn.current(token)
    return found if found is not None and found[1].state in IN_FLIGHT else None


def _complete(turn: Turn, index: int, run: NodeRun, settled: NodeCompleted | NodeSkipped) -> None:
    """A skipped item counts as done, or the map would never join."""
    turn.release(index, settled.item, run)
    turn.emit(settled)
    if settled.item == NO_ITEM:
        turn.settled(index)
    else:
        continue_map(turn, index)


def _retry_or_fail(turn: Turn, index: int, run: NodeRun, failed: NodeFailed) -> None:
    policy = turn.execution.graph.nodes[index].node.retry
    if not policy.is_retryable(failed.error):
        fail_attempt(turn, index, run, failed, diagnosis="the error is not retryable")
        return
    token = turn.execution.token(index, failed.item, run)
    delay = policy.delay_after(run.failures + 1, token, least_s=failed.error.retry_after_s)
    if delay is None:
        keeps = turn.moment.policy.keeps_exhausted
        diagnosis = "its retries are used up" if keeps else None
        fail_attempt(turn, index, run, failed, diagnosis=diagnosis)
        return
    turn.release(index, failed.item, run)
    due = turn.now + delay
    turn.emit(
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
    turn.set_timer(index, failed.item, TimerKind.RETRY, due=due, attempt=run.attempt)


def _crash_loop(run: NodeRun) -> ErrorInfo:
    return ErrorInfo(
        type="CrashLoop",
        message=f"{run.losses} processes died while they ran this task",
        retryable=False,
    )


def _time_out(turn: Turn) -> None:
    limit = turn.execution.graph.workflow.timeout_seconds
    if turn.execution.outcome is None:
        message = f"the execution took longer than its timeout of {limit:g} s"
        close(turn, ExecutionState.FAILED, ErrorInfo(type="ExecutionTimeout", message=message))
