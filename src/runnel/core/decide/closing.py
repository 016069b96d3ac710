"""Failing nodes, and ending executions before their graph is done."""

from collections import deque

from runnel.core.commands import CancelExecution
from runnel.core.decide.turn import TIMER_OF_WAIT, Turn
from runnel.core.effects import DeadLetter, PutDeadLetter
from runnel.core.events import ExecutionClosing, NodeCancelled, NodeFailed, Wait
from runnel.core.execution import NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.states import IN_FLIGHT, ExecutionState


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
