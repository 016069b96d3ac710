"""Starting, cancelling, failing and resuming whole executions."""

from runnel.core.commands import (
    AcquireLimit,
    CancelExecution,
    CreateExecution,
    FailExecution,
    StartExecution,
    TakeOver,
    ValuesShared,
)
from runnel.core.decide.ending import cancel_rest, close, end, execution_timer, tell_parent
from runnel.core.decide.maps import continue_map
from runnel.core.decide.readiness import make_ready
from runnel.core.decide.turn import TIMER_OF_WAIT, Evaluated, Turn, evaluate
from runnel.core.decide.waits import take_signal, tell_child
from runnel.core.effects import SetTimer, TimerKind
from runnel.core.events import ExecutionStarted, NodesTaken, Wait
from runnel.core.execution import NodeRun
from runnel.core.ids import NO_ITEM
from runnel.core.states import ExecutionState, NodeState
from runnel.core.workflow import ErrorInfo


def on_create(turn: Turn, command: CreateExecution) -> None:
    """`turn.execution` has just been made, or existed before: then this is a repetition.

    Of a parent that was taken over, or of a creation that was cut off between two commits: what
    may be missing is derived again.
    """
    execution = turn.execution
    if execution.is_final:
        tell_parent(turn)
    elif execution.state is ExecutionState.RUNNING:
        on_resume(turn)
    elif not command.is_held:
        _start(turn, ExecutionStarted())


def on_take_over(turn: Turn, command: TakeOver) -> None:
    """Before it starts; one that comes twice, or too late, changes nothing."""
    execution = turn.execution
    if execution.state is not ExecutionState.PENDING or command.part in execution.taken_parts:
        return
    turn.emit(NodesTaken(part=command.part, taken=command.taken, configs=command.configs))


def on_start(turn: Turn, command: StartExecution) -> None:
    execution = turn.execution
    is_told_all = len(execution.taken_parts) >= command.parts
    if execution.state is ExecutionState.PENDING and is_told_all:
        _start(turn, ExecutionStarted(input=command.input, key=command.key))


def _start(turn: Turn, event: ExecutionStarted) -> None:
    turn.emit(event)
    _set_execution_timers(turn)
    execution = turn.execution
    if execution.remaining == len(execution.graph):
        turn.to_evaluate.extend(execution.graph.roots)
    else:  # a rerun: what is next lies behind what it took over
        turn.to_evaluate.extend(
            index for index, unsettled in enumerate(execution.unsettled) if not unsettled
        )


def on_cancel(turn: Turn, command: CancelExecution) -> None:
    """Idempotent; a later cancel does not change an outcome that was decided before."""
    execution = turn.execution
    is_closing = execution.outcome is not None
    if execution.is_final or (is_closing and not command.is_forced):
        return
    close(
        turn,
        ExecutionState.CANCELLED,
        ErrorInfo(type="Cancelled", message=command.reason, retryable=False),
        is_abrupt=command.is_forced,
    )
    if execution.state is ExecutionState.PENDING:
        end(turn, ExecutionState.CANCELLED, error=execution.closing_error)


def on_fail(turn: Turn, command: FailExecution) -> None:
    """Deciding raised: nothing more is run for this execution, not even clean-up."""
    if turn.execution.is_final:
        return
    close(turn, ExecutionState.FAILED, command.error, is_abrupt=True)
    end(turn, ExecutionState.FAILED, error=command.error)


def on_resume(turn: Turn) -> None:
    """Derives again whatever a lost store or a half-written decision may have left out.

    Repeating this is harmless: timers are keyed, keys and children are asked for by the same
    token, and what is in flight is left alone (its loss is found by asking the store).
    """
    execution = turn.execution
    if execution.is_final:
        tell_parent(turn)
        return
    if execution.state is ExecutionState.PENDING:
        return
    execution.ready.clear()
    execution.awaited_blobs.clear()
    execution.sharing.clear()
    execution.is_storing_output = False
    _set_execution_timers(turn)
    if execution.outcome is not None:
        cancel_rest(turn)
    for index in range(len(execution.nodes)):
        _resume_node(turn, index)


def on_values_shared(turn: Turn, command: ValuesShared) -> None:
    execution = turn.execution
    execution.aside.update(command.values)
    for name in command.values:
        execution.sharing.pop(name, None)
    on_blob_loaded(turn)


def on_blob_loaded(turn: Turn) -> None:
    """Looks again at every node or item that waited for a blob."""
    execution = turn.execution
    waited, execution.awaited_blobs = execution.awaited_blobs, {}
    if execution.is_final:
        return
    for index, item in waited:
        run = None if index < 0 else execution.run(index, item)
        if run is None and index in execution.maps:
            execution.maps[index].is_in_line = False
            continue_map(turn, index)
        elif run is not None and run.state is NodeState.PENDING:
            turn.to_evaluate.append(index)
        elif run is not None and run.wait is Wait.CHILD:
            _resume_wait(turn, index, item, run)
        elif run is not None and not run.is_final:
            make_ready(turn, index, item)


def _set_execution_timers(turn: Turn) -> None:
    execution = turn.execution
    workflow = execution.graph.workflow
    started_at = execution.started_at or turn.now
    if workflow.timeout_seconds is not None and execution.outcome is None:
        key = execution_timer(execution, TimerKind.TIMEOUT)
        turn.effects.append(SetTimer(key, started_at + workflow.timeout_seconds))
    if workflow.sla_seconds is not None and not execution.is_sla_missed:
        key = execution_timer(execution, TimerKind.SLA)
        turn.effects.append(SetTimer(key, started_at + workflow.sla_seconds))


def _resume_node(turn: Turn, index: int) -> None:
    execution = turn.execution
    run = execution.nodes[index]
    if run.state is NodeState.PENDING and not execution.unsettled[index]:
        turn.to_evaluate.append(index)
    elif run.state is NodeState.WAITING:
        _resume_wait(turn, index, NO_ITEM, run)
    elif run.state is NodeState.RUNNING and index in execution.maps:
        found = execution.maps[index]
        found.is_joining = False
        found.is_in_line = False
        for item, item_run in list(found.active.items()):
            if item_run.state is NodeState.WAITING:
                _resume_wait(turn, index, item, item_run)
        continue_map(turn, index)


def _resume_wait(turn: Turn, index: int, item: int, run: NodeRun) -> None:
    execution = turn.execution
    if run.wait in TIMER_OF_WAIT and run.due is not None:
        turn.set_timer(index, item, TIMER_OF_WAIT[run.wait], due=run.due, attempt=run.attempt)
    if run.wait is Wait.SLOT:
        execution.ready.append((index, item))
    elif run.wait is Wait.SIGNAL:
        take_signal(turn, index)
    elif run.wait is Wait.LIMIT:
        limit = execution.graph.nodes[index].node.concurrency_limit
        holder = execution.token(index, item, run)
        turn.tell(AcquireLimit(key=run.key, limit=limit, holder=holder))
    elif run.wait is Wait.CHILD:
        found = evaluate(turn, index, execution.graph.nodes[index].config, item=item)
        if isinstance(found, Evaluated):
            tell_child(turn, index, item, found.value.get("input", {}))
