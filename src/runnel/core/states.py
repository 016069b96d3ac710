"""The states of executions and nodes, and the tables of allowed state changes."""

from collections.abc import Mapping
from enum import StrEnum

from runnel.errors import IllegalMoveError


class ExecutionState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class NodeState(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


_X = ExecutionState
EXECUTION_MOVES: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    _X.PENDING: frozenset({_X.RUNNING, _X.FAILED, _X.CANCELLED}),
    _X.RUNNING: frozenset({_X.COMPLETED, _X.FAILED, _X.CANCELLED}),
    _X.COMPLETED: frozenset(),
    _X.FAILED: frozenset(),
    _X.CANCELLED: frozenset(),
}

_N = NodeState
NODE_MOVES: Mapping[NodeState, frozenset[NodeState]] = {
    # RUNNING from PENDING: a map starts. The items of a map are queued instead of its node. FAILED
    # from PENDING: a condition, key or list could not be evaluated. COMPLETED from PENDING: a rerun
    # reuses an earlier result.
    _N.PENDING: frozenset(
        {
            _N.QUEUED,
            _N.RUNNING,
            _N.WAITING,
            _N.COMPLETED,
            _N.FAILED,
            _N.SKIPPED,
            _N.CANCELLED,
        }
    ),
    # QUEUED from QUEUED: the task was lost before it started, and is issued again.
    _N.QUEUED: frozenset({_N.QUEUED, _N.RUNNING, _N.WAITING, _N.FAILED, _N.CANCELLED}),
    # SKIPPED from RUNNING: the task's own code raised Skip.
    _N.RUNNING: frozenset(
        {_N.COMPLETED, _N.WAITING, _N.FAILED, _N.SKIPPED, _N.CANCELLED, _N.QUEUED}
    ),
    # COMPLETED from WAITING: a sleep or a child execution has ended, or a signal has arrived.
    _N.WAITING: frozenset({_N.QUEUED, _N.WAITING, _N.COMPLETED, _N.FAILED, _N.CANCELLED}),
    _N.COMPLETED: frozenset(),
    _N.FAILED: frozenset(),
    _N.SKIPPED: frozenset(),
    _N.CANCELLED: frozenset(),
}

FINAL_EXECUTION_STATES = frozenset(
    state for state, targets in EXECUTION_MOVES.items() if not targets
)
UNFINISHED_STATES = tuple(state for state in ExecutionState if state not in FINAL_EXECUTION_STATES)
FINAL_NODE_STATES = frozenset(state for state, targets in NODE_MOVES.items() if not targets)
IN_FLIGHT_STATES = frozenset({NodeState.QUEUED, NodeState.RUNNING})


def check_node_move(node_id: str, current: NodeState, target: NodeState) -> None:
    if target not in NODE_MOVES[current]:
        raise IllegalMoveError(f"node '{node_id}'", current, target)


def check_execution_move(
    execution_id: str, current: ExecutionState, target: ExecutionState
) -> None:
    if target not in EXECUTION_MOVES[current]:
        raise IllegalMoveError(f"execution {execution_id}", current, target)
