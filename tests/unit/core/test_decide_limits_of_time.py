"""An execution that takes too long: its timeout and its SLA."""

import pytest

from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState as X
from tests.core_driver import CoreDriver, make_node, make_workflow


def test_the_timeout_of_an_execution_cancels_its_nodes_and_fails_it() -> None:
    tidy = make_node("tidy", "a", run_when=RunWhen.ALL_SETTLED)
    driver = CoreDriver(make_workflow(make_node("a"), tidy, timeout_seconds=60)).start()

    driver.advance(60)
    driver.finish("tidy")

    assert driver.root.state is X.FAILED
    assert "longer than its timeout of 60 s" in str(driver.root.error)


def test_a_missed_sla_is_recorded_and_changes_nothing_else() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), sla_seconds=5)).start()

    driver.advance(6)
    driver.finish("a")

    assert driver.root.is_sla_missed
    assert driver.root.state is X.COMPLETED
    assert not driver.timers


@pytest.mark.parametrize("ends", ["completed", "timed out", "cancelled"])
def test_an_execution_that_ends_too_late_misses_its_sla_before_the_timer_fires(ends: str) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), sla_seconds=5, timeout_seconds=4)).start()
    driver.now += 6  # and no owner was running to fire a timer

    if ends == "completed":
        driver.finish("a")
    elif ends == "cancelled":
        driver.cancel()
    else:
        driver.advance(0)

    assert driver.root.is_final
    assert driver.root.is_sla_missed
