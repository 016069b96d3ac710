"""`decide` and `create`: apply a command to an execution and return events and effects."""

from collections.abc import Callable
from typing import Any

from runnel.core import commands as c
from runnel.core.agenda import Agenda
from runnel.core.decide.attempts import (
    on_child_settled,
    on_limit_granted,
    on_task_completed,
    on_task_deferred,
    on_task_failed,
    on_task_lost,
    on_task_skipped,
    on_task_started,
    on_task_stopped,
    on_timer_fired,
)
from runnel.core.decide.decision_context import DecisionContext, DecisionInputs
from runnel.core.decide.lifecycle import (
    on_blob_loaded,
    on_cancel,
    on_create,
    on_fail,
    on_resume,
    on_start,
    on_take_over,
    on_values_shared,
)
from runnel.core.decide.maps import hydrate_maps, on_output_stored
from runnel.core.decide.outcomes import EXECUTION_NODE_ID, on_execution_output_stored
from runnel.core.decide.readiness import advance_execution
from runnel.core.decide.waits import on_signal
from runnel.core.effects import Decision
from runnel.core.events import ExecutionCreated
from runnel.core.execution import Execution
from runnel.core.graph import Graph

__all__ = ["DecisionInputs", "create", "decide", "hydrate_maps"]


def create(
    command: c.CreateExecution, graph: Graph, agenda: Agenda, inputs: DecisionInputs
) -> tuple[Execution, Decision]:
    """Returns a new execution and the decision that creates it, and that starts it unless
    `is_held`.

    `agenda` must be empty and becomes the agenda of the execution.
    """
    priority = graph.workflow.priority if command.priority is None else command.priority
    created = ExecutionCreated(
        execution_id=command.execution_id,
        workflow=graph.workflow.name,
        version=command.version,
        definition=graph.hash,
        input=command.input,
        labels={**graph.workflow.labels, **command.labels},
        priority=priority,
        parent=command.parent,
        rerun_of=command.rerun_of,
        created_at=command.created_at,
    )
    execution = Execution(created, graph)
    decision = decide(execution, agenda, command, inputs)
    return execution, Decision(events=[created, *decision.events], effects=decision.effects)


def decide(
    execution: Execution, agenda: Agenda, command: c.Command, inputs: DecisionInputs
) -> Decision:
    """Applies the command to the execution; returns its events and effects.

    The decision is empty if the command no longer has any effect.

    `decide` applies the events to `execution` and updates `agenda`. If `decide` raises, both are in
    an unknown state and must be loaded again.
    """
    context = DecisionContext(execution, agenda, inputs)
    _HANDLERS[type(command)](context, command)
    advance_execution(context)
    return Decision(events=context.events, effects=context.effects)


def _on_output_stored(context: DecisionContext, command: c.OutputStored) -> None:
    if command.ref.node_id == EXECUTION_NODE_ID:
        on_execution_output_stored(context, command)
    else:
        on_output_stored(context, command)


# The parameter type is Any, because each function takes only the command type of its key.
_HANDLERS: dict[type, Callable[[DecisionContext, Any], None]] = {
    c.CreateExecution: on_create,
    c.TakeOver: on_take_over,
    c.StartExecution: on_start,
    c.TaskStarted: on_task_started,
    c.TaskCompleted: on_task_completed,
    c.TaskFailed: on_task_failed,
    c.TaskSkipped: on_task_skipped,
    c.TaskLost: on_task_lost,
    c.TaskStopped: on_task_stopped,
    c.TaskDeferred: on_task_deferred,
    c.TimerFired: on_timer_fired,
    c.SendSignal: on_signal,
    c.CancelExecution: on_cancel,
    c.ChildSettled: on_child_settled,
    c.LimitGranted: on_limit_granted,
    c.BlobLoaded: lambda context, _command: on_blob_loaded(context),
    c.OutputStored: _on_output_stored,
    c.ValuesShared: on_values_shared,
    c.ResumeExecution: lambda context, _command: on_resume(context),
    c.FailExecution: on_fail,
}
