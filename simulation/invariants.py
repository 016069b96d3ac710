"""What must hold of an execution after every command; checked by tests and the simulator."""

from runnel.core.agenda import Agenda
from runnel.core.events import Wait
from runnel.core.execution import Execution
from runnel.core.states import FINAL_NODE_STATES, IN_FLIGHT_STATES, ExecutionState, NodeState
from runnel.errors import BrokenInvariantError


def check_invariants(execution: Execution, agenda: Agenda) -> None:
    """Raises BrokenInvariantError; O(graph), so not for the hot path."""
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
    """A counter of unsettled parents always equals the distinct parents that are not settled."""
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        open_parents = sum(not execution.nodes[parent].is_final for parent in compiled.parents)
        _require(
            execution.unsettled_parents[compiled.index] == open_parents,
            f"'{compiled.node.id}' counts {execution.unsettled_parents[compiled.index]} open "
            f"parents",
        )
        has_begun = run.state not in (NodeState.PENDING, NodeState.CANCELLED)
        _require(not (has_begun and open_parents), f"'{compiled.node.id}' did not wait for all")


def _check_nothing_left(execution: Execution) -> None:
    _require(execution.unsettled_count == 0, "a final execution has unsettled nodes")
    _require(execution.in_flight == 0, "a final execution has something in flight")


def _check_not_stuck(execution: Execution, agenda: Agenda) -> None:
    """Whatever could go on has something that will make it: a place in line, or a blob coming."""
    in_line = {index for index, _ in agenda.ready}
    in_line |= {index for index, _ in agenda.awaited_blobs}
    joining = {index for index, progress in agenda.maps.items() if progress.is_joining}
    for compiled in execution.graph.nodes:
        run = execution.nodes[compiled.index]
        is_begun = run.state is not NodeState.PENDING or execution.unsettled_parents[compiled.index]
        if not is_begun or run.wait is Wait.SLOT:
            _require(compiled.index in in_line, f"'{compiled.node.id}' is ready and in no line")
    for index, map_run in execution.maps.items():
        if not execution.nodes[index].is_final:
            is_moving = map_run.active or index in joining or index in in_line
            _require(is_moving, f"nothing moves the map '{execution.graph.nodes[index].node.id}'")
    waits = any(
        run.state is NodeState.WAITING or run.state in IN_FLIGHT_STATES for run in execution.nodes
    )
    _require(waits or in_line or agenda.is_storing_output, "nothing is under way")


def _require(holds: object, problem: str) -> None:
    if not holds:
        raise BrokenInvariantError(problem)
