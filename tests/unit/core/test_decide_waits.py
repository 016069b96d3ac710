"""Maps, children, signals, sleeps and concurrency keys, also after a takeover."""

import msgspec
import pytest

from runnel.core.ids import NO_ITEM
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.workflow import EnginePolicy, Workflow
from tests.core_driver import TRANSIENT, CoreDriver, make_node, make_workflow

MAP = make_workflow(
    make_node("list"), make_node("each", "list", for_each="list.items"), make_node("sum", "each")
)


def child_of(child: Workflow, **fields: object) -> Workflow:
    parent = make_node(
        "sub", "a", handler="workflow", config={"input": {"n": "{{ a.n }}"}}, child=child, **fields
    )
    return make_workflow(make_node("a"), parent, make_node("z", "sub"))


@pytest.fixture(params=["undisturbed", "taken over", "taken over, tasks survive"])
def trouble(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def disturb(driver: CoreDriver, trouble: str) -> None:
    if trouble != "undisturbed":
        driver.take_over(tasks_survive="survive" in trouble)


def test_a_map_joins_its_results_in_the_order_of_its_items(trouble: str) -> None:
    driver = CoreDriver(MAP).start()
    driver.finish("list", {"items": ["x", "y", "z"]})
    driver.finish("each", "Z", item=2)
    disturb(driver, trouble)
    driver.finish("each", "X", item=0)
    task = driver.tasks[driver.token("each", 1)]
    driver.finish("each", "Y", item=1)

    assert bytes(task.item) == b'"y"'
    assert driver.tasks[driver.token("sum")].inputs["each"].decode() == ["X", "Y", "Z"]  # type: ignore[index]


def test_an_empty_list_completes_its_map_at_once() -> None:
    driver = CoreDriver(MAP).start()

    driver.finish("list", {"items": []})

    assert driver.states()["each"] is S.COMPLETED
    assert driver.queued() == ["sum"]


def test_a_map_issues_at_most_its_window_and_the_next_item_follows_each() -> None:
    driver = CoreDriver(MAP, policy=EnginePolicy(in_flight_max=3)).start()
    driver.finish("list", {"items": list(range(10))})
    seen = []

    while driver.states()["each"] is S.RUNNING:
        seen.append(len(driver.tasks))
        token = next(iter(driver.tasks))
        driver.finish("each", token.item, item=token.item)

    assert max(seen) == 3
    assert driver.tasks[driver.token("sum")].inputs["each"].decode() == list(range(10))  # type: ignore[index]


def test_maps_that_are_ready_together_take_turns() -> None:
    definition = make_workflow(
        make_node("a", for_each="input.items"),
        make_node("b", for_each="input.items"),
        max_concurrency=4,
    )

    driver = CoreDriver(definition).start({"items": list(range(100))})

    assert sorted(driver.queued()) == ["a", "a", "b", "b"]


def test_an_item_that_fails_fails_the_map_and_stops_the_others() -> None:
    driver = CoreDriver(MAP).start()
    driver.finish("list", {"items": [1, 2, 3]})

    driver.fail("each", item=1)

    assert driver.root.state is X.FAILED
    assert "each[1]: bad" in str(driver.root.nodes[1].error)
    assert not driver.tasks


def test_an_item_is_retried_by_itself(trouble: str) -> None:
    retry = RetryPolicy(initial_delay=5, jitter=False)
    definition = make_workflow(make_node("each", for_each="[1, 2]", retry=retry))
    driver = CoreDriver(definition).start()

    driver.fail("each", TRANSIENT, item=0)
    driver.finish("each", "two", item=1)
    disturb(driver, trouble)
    driver.advance(5)
    driver.finish("each", "one", item=0)

    assert driver.output() == ["one", "two"]


def test_a_for_each_that_is_not_a_list_fails_its_node_and_quotes_the_value() -> None:
    driver = CoreDriver(make_workflow(make_node("each", for_each="input.items"))).start(
        {"items": "text"}
    )

    assert driver.root.state is X.FAILED
    assert 'for_each gave "text", expected a list' in str(driver.root.error)


def test_a_large_joined_output_is_offloaded_and_passed_by_reference() -> None:
    driver = CoreDriver(MAP, policy=EnginePolicy(inline_bytes_max=20)).start()
    driver.finish("list", {"items": [1, 2, 3]})

    for item in range(3):
        driver.finish("each", "x" * 10, item=item)

    value = driver.tasks[driver.token("sum")].inputs["each"]  # type: ignore[index]
    assert value.blob is not None
    assert driver.blobs[value.blob] == b'["xxxxxxxxxx","xxxxxxxxxx","xxxxxxxxxx"]'


def test_a_list_in_a_blob_is_loaded_before_the_map_begins(trouble: str) -> None:
    driver = CoreDriver(MAP).start()
    driver.finish_with_blob("list", {"items": ["p", "q"]})
    disturb(driver, trouble)

    assert sorted(driver.queued()) == ["each", "each"]
    driver.finish("each", 1, item=0)
    disturb(driver, trouble)
    driver.finish("each", 2, item=1)
    assert driver.queued() == ["sum"]


def test_a_condition_on_a_blob_waits_until_it_is_loaded() -> None:
    driver = CoreDriver(
        make_workflow(make_node("a"), make_node("b", "a", condition="a.n > 3"))
    ).start()

    driver.finish_with_blob("a", {"n": 4})

    assert driver.queued() == ["b"]


def test_a_child_execution_gets_its_input_and_gives_its_output(trouble: str) -> None:
    driver = CoreDriver(child_of(make_workflow(make_node("c")))).start()
    driver.finish("a", {"n": 5})
    disturb(driver, trouble)
    (token,) = driver.tasks

    assert driver.tasks[token].execution_input.decode() == {"n": 5}
    driver.send_completed(token, "from the child")
    assert driver.tasks[driver.token("z")].inputs["sub"].decode() == "from the child"  # type: ignore[index]


def test_a_failed_child_fails_its_node_with_the_reason() -> None:
    driver = CoreDriver(child_of(make_workflow(make_node("c")))).start()
    driver.finish("a", {"n": 5})
    (token,) = driver.tasks

    driver.send_failed(token)

    assert driver.root.state is X.FAILED
    assert "node 'c' failed: ValueError: bad" in str(driver.root.nodes[1].error)


def test_cancelling_a_parent_cancels_its_children() -> None:
    driver = CoreDriver(child_of(make_workflow(make_node("c")))).start()
    driver.finish("a", {"n": 5})

    driver.cancel()

    assert not driver.tasks
    assert {execution.state for execution in driver.executions.values()} == {X.CANCELLED}


def test_a_map_of_child_executions_joins_their_outputs() -> None:
    child = make_workflow(make_node("c"))
    map_node = make_node(
        "each",
        handler="workflow",
        for_each="input.items",
        config={"input": {"n": "{{ item }}"}},
        child=child,
    )
    driver = CoreDriver(make_workflow(map_node)).start({"items": [1, 2, 3]})

    driver.finish_all(lambda task: task.execution_input.decode()["n"] * 10)

    assert driver.output() == [10, 20, 30]


def test_a_sleep_ends_by_its_timer(trouble: str) -> None:
    definition = make_workflow(
        make_node("nap", handler="sleep", config={"seconds": "{{ input.s }}"})
    )
    driver = CoreDriver(definition).start({"s": 60})

    driver.advance(59)
    disturb(driver, trouble)
    assert driver.states()["nap"] is S.WAITING
    driver.advance(1)

    assert driver.root.state is X.COMPLETED


def test_a_signal_completes_the_node_that_waits_for_it(trouble: str) -> None:
    definition = make_workflow(
        make_node("ok", handler="wait_for_signal", config={"signal": "approve"})
    )
    driver = CoreDriver(definition).start()
    disturb(driver, trouble)

    driver.signal("other")
    assert driver.states()["ok"] is S.WAITING
    driver.signal("approve", {"by": "eve"}, signal_id="s2")

    assert driver.output() == {"by": "eve"}


def test_a_signal_that_arrives_early_is_kept(trouble: str) -> None:
    wait = make_node("ok", "a", handler="wait_for_signal", config={"signal": "approve"})
    driver = CoreDriver(make_workflow(make_node("a"), wait)).start()

    driver.signal("approve", "early")
    disturb(driver, trouble)
    driver.finish("a")

    assert driver.output() == "early"


def test_the_same_signal_id_is_consumed_once() -> None:
    waiting_nodes = [
        make_node(i, handler="wait_for_signal", config={"signal": "s"}) for i in ("a", "b")
    ]
    driver = CoreDriver(make_workflow(*waiting_nodes)).start()

    driver.signal("s", signal_id="same")
    driver.signal("s", signal_id="same")

    assert sorted(driver.states().values()) == [S.COMPLETED, S.WAITING]


@pytest.mark.parametrize(
    ("on_timeout", "expected"), [("fail", X.FAILED), ("complete", X.COMPLETED)]
)
def test_a_signal_that_does_not_arrive_in_time(on_timeout: str, expected: X) -> None:
    config = {"signal": "s", "timeout_seconds": 10, "on_timeout": on_timeout}
    driver = CoreDriver(
        make_workflow(make_node("w", handler="wait_for_signal", config=config))
    ).start()

    driver.advance(10)

    assert driver.root.state is expected


def test_a_concurrency_key_bounds_its_holders_and_a_release_wakes_the_next(
    trouble: str,
) -> None:
    nodes = [make_node(f"n{i}", concurrency_key="db", concurrency_limit=2) for i in range(5)]
    driver = CoreDriver(make_workflow(*nodes)).start()
    seen = []

    while driver.tasks:
        seen.append(len(driver.tasks))
        driver.finish(driver.queued()[0])
        disturb(driver, trouble)

    assert max(seen) == 2
    assert driver.root.state is X.COMPLETED
    assert all(limit.is_empty for limit in driver.limits.values())


def test_a_key_is_free_again_while_its_holder_waits_for_a_retry() -> None:
    nodes = [make_node(i, concurrency_key="{{ input.key }}") for i in ("a", "b")]
    driver = CoreDriver(make_workflow(*nodes)).start({"key": "k"})
    assert driver.queued() == ["a"]

    driver.fail("a", TRANSIENT)

    assert driver.queued() == ["b"]


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    nodes = [make_node(i, concurrency_key="k") for i in ("a", "b")]
    tidy = make_node("tidy", "a", run_when=RunWhen.ALL_SETTLED)
    driver = CoreDriver(make_workflow(*nodes, tidy)).start()

    driver.cancel()

    assert driver.queued() == ["tidy"]
    assert all(limit.is_empty for limit in driver.limits.values())


def test_a_due_retry_without_a_slot_continues_after_a_takeover(
    trouble: str,
) -> None:
    retry = RetryPolicy(initial_delay=1, jitter=False)
    definition = make_workflow(make_node("a", retry=retry), make_node("b"), max_concurrency=1)
    driver = CoreDriver(definition).start()
    driver.fail("a", TRANSIENT)
    assert driver.queued() == ["b"]
    driver.advance(1)
    assert driver.root.nodes[0].state is S.WAITING

    disturb(driver, trouble)
    driver.finish("b")
    driver.finish("a")

    assert driver.root.state is X.COMPLETED


@pytest.mark.slow
def test_a_map_of_many_items_costs_the_same_per_item() -> None:
    driver = CoreDriver(make_workflow(make_node("each", for_each="input.items")))
    driver.start({"items": list(range(5_000))})

    driver.finish_all(lambda task: task.token.item)

    assert driver.root.state is X.COMPLETED
    assert len(driver.issued) == 5_000
    assert NO_ITEM not in [token.item for token in driver.issued]


def test_a_failed_child_is_retried_as_a_new_child_if_the_policy_says_so() -> None:
    retry = RetryPolicy(retry_on=("ChildFailed",), initial_delay=1, jitter=False)
    driver = CoreDriver(child_of(make_workflow(make_node("c")), retry=retry)).start()
    driver.finish("a", {"n": 5})
    (first,) = driver.tasks

    driver.send_failed(first)
    driver.advance(1)
    (second,) = driver.tasks
    driver.send_completed(second, "now")

    assert (first.execution_id, second.execution_id) == ("e1.sub.1", "e1.sub.2")
    assert driver.queued() == ["z"]


def test_an_error_that_names_a_delay_is_not_retried_sooner() -> None:
    retry = RetryPolicy(max_retries=2, initial_delay=1, jitter=False)
    driver = CoreDriver(make_workflow(make_node("a", retry=retry))).start()

    driver.fail("a", msgspec.structs.replace(TRANSIENT, retry_after_s=90.0))
    driver.advance(89.9)
    assert driver.states()["a"] is S.WAITING
    driver.advance(0.2)

    assert driver.states()["a"] is S.QUEUED
