"""Impossible histories and inconsistent counts are refused."""

import pytest

from runnel.core.codec import encode_entry
from runnel.core.events import ExecutionStarted, NodeCompleted
from runnel.core.evolve import evolve, replay
from runnel.core.ids import NodeId
from runnel.core.values import NULL
from runnel.errors import BrokenInvariantError, IllegalMoveError
from simulation.invariants import check_invariants
from tests.core_driver import ROOT, CoreDriver, make_node, make_workflow


def test_a_history_begins_with_the_creation() -> None:
    driver = CoreDriver(make_workflow(make_node("a")))

    with pytest.raises(BrokenInvariantError, match="does not begin with ExecutionCreated"):
        replay([encode_entry(1.0, [ExecutionStarted()])], driver.graphs.__getitem__)


def test_a_settled_node_is_not_settled_again() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"))).start()
    driver.finish("a")

    with pytest.raises(IllegalMoveError, match="'a' can't move from COMPLETED"):
        evolve(driver.root, NodeCompleted(node=NodeId("a"), output=NULL), 1.0)


def test_a_settled_item_is_not_settled_again() -> None:
    driver = CoreDriver(make_workflow(make_node("each", for_each="[1, 2]"))).start()
    driver.finish("each", item=0)

    with pytest.raises(BrokenInvariantError, match="item 0 of 'each' is settled twice"):
        evolve(driver.root, NodeCompleted(node=NodeId("each"), item=0, output=NULL), 1.0)


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        ("unsettled_count", 7, "unsettled_count is 7"),
        ("in_flight", 7, "in_flight is 7, not 1"),
        ("unsettled_parents", [0, 0], "'b' counts 0 open parents"),
    ],
)
def test_the_error_names_an_inconsistent_count(attribute: str, value: object, problem: str) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a"))).start()
    setattr(driver.root, attribute, value)

    with pytest.raises(BrokenInvariantError, match=problem):
        check_invariants(driver.root, driver.agendas[ROOT])


def test_the_error_names_a_runnable_node_that_is_not_queued() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"), max_concurrency=1)).start()
    driver.agendas[ROOT].ready.clear()

    with pytest.raises(BrokenInvariantError, match="'b' is ready but not queued"):
        check_invariants(driver.root, driver.agendas[ROOT])
