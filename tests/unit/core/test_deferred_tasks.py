"""A task that a rate limit defers waits on the owner's clock, not on its worker's."""

import pytest

from runnel.core.commands import TaskDeferred
from runnel.core.ids import NodeId
from runnel.core.workflow import Node, Workflow
from tests.core_driver import CoreDriver


@pytest.mark.parametrize(("wait_s", "expected_s"), [(6.0, 6.0), (None, -30.0)])
def test_a_wait_begins_at_the_time_of_the_decision(wait_s: float | None, expected_s: float) -> None:
    driver = CoreDriver(Workflow(name="w", nodes=(Node(id=NodeId("a"), handler="h"),)))
    driver.start()
    behind = driver.now - 30.0

    driver.send(TaskDeferred(token=driver.token("a"), until=behind, wait_s=wait_s))

    assert [timer.due for timer in driver.timers.values()] == [driver.now + expected_s]
