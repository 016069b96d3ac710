"""Values that a decision itself needs: still in a blob, of the wrong type, or too large."""

import pytest

from runnel.core.states import ExecutionState as X
from runnel.core.values import make_inline_value
from runnel.core.workflow import EnginePolicy
from tests.core_driver import CoreDriver, make_node, make_workflow

CHILD = make_workflow(make_node("c"))

taken_over_or_not = pytest.mark.parametrize("is_taken_over", [False, True])


@taken_over_or_not
def test_items_whose_key_is_in_a_blob_are_issued_once_it_is_loaded(is_taken_over: bool) -> None:
    keyed = make_node("each", "a", for_each="[1, 2]", concurrency_key="{{ a.key }}")
    driver = CoreDriver(make_workflow(make_node("a"), keyed)).start()
    driver.finish_with_blob("a", {"key": "k"})
    if is_taken_over:
        driver.take_over()

    issued = driver.queued()
    driver.finish_all()

    assert issued == ["each"]
    assert driver.root.state is X.COMPLETED


@taken_over_or_not
def test_a_child_whose_input_is_in_a_blob_is_created_once(is_taken_over: bool) -> None:
    sub = make_node("sub", "a", handler="workflow", config={"input": "{{ a }}"}, child=CHILD)
    driver = CoreDriver(make_workflow(make_node("a"), sub)).start()
    driver.finish_with_blob("a", {"n": 4})
    if is_taken_over:
        driver.take_over()

    driver.finish_all(lambda task: task.execution_input.decode())

    assert [execution.id for execution in driver.all_executions()] == ["e1", "e1.sub.1"]
    assert driver.execution("e1.sub.1").input == make_inline_value({"n": 4})
    assert driver.output() == {"n": 4}


def test_a_sleep_whose_length_is_in_a_blob_begins_once_it_is_loaded() -> None:
    nap = make_node("nap", "a", handler="sleep", config={"seconds": "{{ a.s }}"})
    driver = CoreDriver(make_workflow(make_node("a"), nap)).start()

    driver.finish_with_blob("a", {"s": 9})
    driver.advance(9)

    assert driver.output() == {"slept_seconds": 9}


@pytest.mark.parametrize(
    ("handler", "config", "problem"),
    [
        ("sleep", {"seconds": "{{ input.x }}"}, "'input' has no 'x'"),
        ("sleep", {"seconds": "{{ input.text }}"}, "'seconds' is \"soon\", expected a number"),
        ("wait_for_signal", {"signal": "{{ input.null }}"}, "expected a text of 1 to 500"),
        (
            "wait_for_signal",
            {"signal": "go", "timeout_seconds": "{{ input.text }}"},
            "'timeout_seconds' is \"soon\", expected a number of seconds",
        ),
    ],
)
def test_a_bad_value_fails_a_node_that_no_worker_runs(
    handler: str, config: dict[str, object], problem: str
) -> None:
    driver = CoreDriver(make_workflow(make_node("a", handler=handler, config=config)))

    driver.start({"text": "soon", "null": None})

    assert driver.root.state is X.FAILED
    assert problem in str(driver.root.error)


def test_an_input_too_large_for_a_child_fails_its_node() -> None:
    sub = make_node("sub", handler="workflow", config={"input": "{{ input }}"}, child=CHILD)
    driver = CoreDriver(make_workflow(sub), policy=EnginePolicy(inline_bytes_max=100))

    driver.start({"text": "x" * 100})

    assert "the child's input has 121 bytes, at most 100 are allowed" in str(driver.root.error)


def test_a_map_of_more_items_than_allowed_fails_and_says_how_many() -> None:
    driver = CoreDriver(
        make_workflow(make_node("each", for_each="[1, 2, 3]")), policy=EnginePolicy(map_items_max=2)
    )

    driver.start()

    assert "for_each gave 3 items, at most 2 are allowed" in str(driver.root.error)
