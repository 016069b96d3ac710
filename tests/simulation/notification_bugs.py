"""Deliberate defects of data that user code and callers receive."""

from typing import Any

from msgspec.structs import replace

from runnel.core import decide as decide_package
from runnel.core import evolve as evolve_module
from runnel.core.commands import ChildSettled, TaskStarted
from runnel.core.decide import attempts as task
from runnel.core.decide import outcomes as finishing
from runnel.core.decide import waits as waiting
from runnel.core.decide.decision_context import DecisionContext
from runnel.core.effects import TimerKind
from runnel.core.events import ExecutionFinished, NodeCompleted, NodeFailed, SignalConsumed
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, TaskToken
from tests.simulation.bugs import Bug, Patch


def signal_name_is_ignored(patch: Patch) -> None:
    """Consumes the oldest signal of any name."""

    def take(turn: DecisionContext, index: int) -> None:
        execution = turn.execution
        if not execution.signals:
            return
        run, node_id = execution.nodes[index], execution.graph.nodes[index].node.id
        signal_id, (_, payload) = next(iter(execution.signals.items()))
        turn.emit(SignalConsumed(signal_id=signal_id, node=node_id))
        turn.emit(NodeCompleted(node=node_id, output=payload))
        if run.due is not None:
            turn.clear_timer(index, NO_ITEM, TimerKind.SIGNAL)
        turn.queue_ready_children(index)

    patch.setattr(waiting, "consume_signal", take)


def each_attempt_has_its_own_idempotency_key(patch: Patch) -> None:
    _set_idempotency_key(
        patch, lambda token: f"{token.execution_id}/{token.node_id}/{token.item}/{token.nonce}"
    )


def items_share_an_idempotency_key(patch: Patch) -> None:
    _set_idempotency_key(patch, lambda token: f"{token.execution_id}/{token.node_id}")


def start_is_not_recorded(patch: Patch) -> None:
    """Shows a running task as queued."""
    patch.setitem(decide_package._HANDLERS, TaskStarted, lambda _turn, _command: None)


def error_of_a_task_is_empty(patch: Patch) -> None:
    real = task._retry_or_fail

    def silent(turn: DecisionContext, index: int, run: NodeRun, failed: NodeFailed) -> None:
        real(turn, index, run, replace(failed, error=replace(failed.error, message="")))

    patch.setattr(task, "_retry_or_fail", silent)


def execution_fails_without_an_error(patch: Patch) -> None:
    real = finishing.end_execution

    def silent(turn: DecisionContext, state: Any, *, output: Any = None, error: Any = None) -> None:
        real(turn, state, output=output)

    patch.setattr(finishing, "end_execution", silent)


def error_of_a_child_is_lost(patch: Patch) -> None:
    real = waiting.convert_child_result

    def silent(command: ChildSettled) -> Any:
        return real(replace(command, error=None))

    patch.setattr(task, "convert_child_result", silent)


def end_time_is_the_start_time(patch: Patch) -> None:
    """Lists the start time of an execution as its end time."""
    apply = evolve_module._APPLIERS[ExecutionFinished]

    def at_once(execution: Execution, event: ExecutionFinished, at: float) -> None:
        apply(execution, event, at)
        execution.finished_at = execution.started_at

    patch.setitem(evolve_module._APPLIERS, ExecutionFinished, at_once)


def _set_idempotency_key(patch: Patch, key: Any) -> None:
    patch.setattr(TaskToken, "idempotency_key", property(key))


ALL: tuple[Bug, ...] = (
    signal_name_is_ignored,
    each_attempt_has_its_own_idempotency_key,
    items_share_an_idempotency_key,
    start_is_not_recorded,
    error_of_a_task_is_empty,
    execution_fails_without_an_error,
    error_of_a_child_is_lost,
    end_time_is_the_start_time,
)
