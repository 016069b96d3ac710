"""The place of a task in its queue, and the priority that it has from its execution."""

from runnel.core.decide.task_dispatch import WIDE_TASKS
from tests.core_driver import CoreDriver, make_node, make_workflow

CHAIN = make_workflow(make_node("a"), make_node("b", "a"))
WIDE = make_workflow(make_node("each", for_each="input.items"))


def places(driver: CoreDriver) -> list[float]:
    return [task.place for task in driver.tasks.values()]


def test_each_task_of_a_narrow_execution_has_the_place_of_its_start() -> None:
    driver = CoreDriver(CHAIN).start()
    driver.advance(100.0)
    driver.finish("a")

    assert places(driver) == [1_000.0]


def test_a_task_that_is_issued_again_has_the_place_of_its_start() -> None:
    driver = CoreDriver(CHAIN).start()
    driver.advance(100.0)
    driver.lose("a", was_started=False)

    assert places(driver) == [1_000.0]


def test_the_further_tasks_of_a_wide_execution_have_later_places() -> None:
    driver = CoreDriver(WIDE).start({"items": list(range(3 * WIDE_TASKS))})

    found = places(driver)

    assert found[:WIDE_TASKS] == [1_000.0] * WIDE_TASKS
    assert found[WIDE_TASKS:] == sorted(set(found[WIDE_TASKS:]))
    assert found[-1] == 1_002.0


def test_a_lost_task_of_a_wide_execution_comes_first_again() -> None:
    driver = CoreDriver(WIDE).start({"items": list(range(3 * WIDE_TASKS))})

    driver.lose("each", item=2 * WIDE_TASKS, was_started=False)

    assert driver.tasks[driver.token("each", 2 * WIDE_TASKS)].place == 1_000.0


def test_a_task_has_the_priority_of_its_workflow() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), priority=20)).start()

    assert [task.priority for task in driver.tasks.values()] == [20]


def test_the_priority_of_an_execution_replaces_that_of_its_workflow() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a"), priority=20))
    driver.start(priority=0)
    driver.finish("a")

    assert [task.priority for task in driver.tasks.values()] == [0]


def test_a_child_has_the_priority_of_its_parent() -> None:
    child = make_workflow(make_node("inner"), priority=50)
    definition = make_workflow(make_node("sub", handler="workflow", child=child), priority=20)

    driver = CoreDriver(definition).start(priority=-1)

    assert [task.priority for task in driver.tasks.values()] == [-1]
