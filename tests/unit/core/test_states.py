"""The table of state changes."""

import pytest

from runnel.core.states import (
    EXECUTION_MOVES,
    FINAL_EXECUTION_STATES,
    FINAL_NODE_STATES,
    NODE_MOVES,
    ExecutionState,
    NodeState,
    check_execution_move,
    check_node_move,
)
from runnel.errors import IllegalMoveError


def test_every_state_is_in_the_table() -> None:
    assert set(NODE_MOVES) == set(NodeState)
    assert set(EXECUTION_MOVES) == set(ExecutionState)


def test_nothing_leaves_a_final_state() -> None:
    assert {
        NodeState.COMPLETED,
        NodeState.FAILED,
        NodeState.SKIPPED,
        NodeState.CANCELLED,
    } == FINAL_NODE_STATES
    for final in FINAL_NODE_STATES:
        for state in NodeState:
            with pytest.raises(IllegalMoveError):
                check_node_move("n", final, state)
    for ended in FINAL_EXECUTION_STATES:
        for target in ExecutionState:
            with pytest.raises(IllegalMoveError):
                check_execution_move("e", ended, target)


def test_a_final_state_can_be_reached_from_every_other() -> None:
    for state in set(NodeState) - FINAL_NODE_STATES:
        assert NodeState.CANCELLED in NODE_MOVES[state]
        assert NodeState.FAILED in NODE_MOVES[state]


def test_the_error_names_an_illegal_move() -> None:
    with pytest.raises(IllegalMoveError, match="node 'n' can't move from COMPLETED to QUEUED"):
        check_node_move("n", NodeState.COMPLETED, NodeState.QUEUED)
