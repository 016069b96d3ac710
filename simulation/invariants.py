"""Checks invariants that must hold after every command of an execution, for tests and the
simulation.
"""

from runnel.core.agenda import Agenda
from runnel.core.events import Wait
from runnel.core.execution import Execution
from runnel.core.states import FINAL_NODE_STATES, IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.errors import BrokenInvariantError


def check_invariants(execution: Execution, agenda: Agenda) -> None:
    """Raises BrokenInvariantError if an invariant is broken. Takes O(graph) time."""
    _check_counts(execution)
    _check_joins(execution)
    if execution.is_final:
        _check_nothing_left(execution)
    elif execution.state is ExecutionState.RUNNING:
        _check_not_stuck(execution, agenda)


def _check_counts(execution: Execution) -> None:
    unsettled = sum(run.state not in FINAL_NODE_STATES for run in execution.nodes)
    _require(
        execution.unsettled_count == unsettled, f"unsettled_count is {execution.unsettled_count}"
    )
    holding = sum(
        run.holds_slot for i, run in enumerate(execution.nodes) if i not in execution.maps
    )
    for map_run in execution.maps.values():
        holding += sum(run.holds_slot for run in map_run.active.values())
    _require(execution.in_flight == holding, f"in_flight is {execution.in_flight}, not {holding}")


def _check_joins(execution: Execution) -> None:
    """Checks that each counter of unsettled parents equals their actual number."""
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        open_parents = sum(not execution.nodes[parent].is_final for parent in compiled.parents)
        _require(
            execution.unsettled_parents[compiled.index] == open_parents,
            f"'{compiled.node.id}' counts {execution.unsettled_parents[compiled.index]} open "
            f"parents",
        )
        has_started = run.state not in (NodeState.PENDING, NodeState.CANCELLED)
        _require(
            not (has_started and open_parents),
            f"'{compiled.node.id}' started before all its parents were settled",
        )


def _check_nothing_left(execution: Execution) -> None:
    _require(execution.unsettled_count == 0, "a final execution has unsettled nodes")
    _require(execution.in_flight == 0, "a final execution has something in flight")


def _check_not_stuck(execution: Execution, agenda: Agenda) -> None:
    """Checks that every runnable node is queued or waits for a blob."""
    queued = {index for index, _ in agenda.ready}
    queued |= {index for index, _ in agenda.awaited_blobs}
    joining = {index for index, progress in agenda.maps.items() if progress.is_joining}
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        has_open_parents = execution.unsettled_parents[compiled.index]
        is_ready = run.state is NodeState.PENDING and not has_open_parents
        if is_ready and compiled.is_clean_up and execution.stopping:
            continue  # waits for the end of stopped code
        if is_ready or run.wait is Wait.SLOT:
            _require(compiled.index in queued, f"'{compiled.node.id}' is ready but not queued")
    for index, map_run in execution.maps.items():
        if not execution.nodes[index].is_final:
            is_moving = map_run.active or index in joining or index in queued
            _require(is_moving, f"nothing moves the map '{execution.graph.nodes[index].node.id}'")
    waits = any(
        run.state is NodeState.WAITING or run.state in IN_FLIGHT_STATES for run in execution.nodes
    )
    _require(
        waits or queued or agenda.is_storing_output or execution.stopping, "nothing is in progress"
    )


def _require(holds: object, problem: str) -> None:
    if not holds:
        raise BrokenInvariantError(problem)
