"""Large values that all items of a map carry are offloaded once, and their tasks refer to
the blob.
"""

from typing import Any

import pytest

from runnel.core.codec import decode_entry
from runnel.core.commands import BlobLoaded, SendSignal, ValuesShared
from runnel.core.effects import Effect, ShareValues, TaskMessage
from runnel.core.events import MapStarted
from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.states import ExecutionState, NodeState
from runnel.core.values import INLINE_BYTES_MAX, SHARED_BYTES_MAX, make_inline_value
from runnel.core.workflow import EnginePolicy, Workflow
from tests.core_driver import ROOT, TRANSIENT, CoreDriver, make_node, make_workflow

POLICY = EnginePolicy(inline_bytes_max=300, shared_bytes_max=50)
LARGE = "x" * 100
INPUT = {"items": [1, 2, 3], "text": LARGE}
OF_INPUT = make_workflow(make_node("each", for_each="input.items"))
OF_NODES = make_workflow(
    make_node("list"),
    make_node("far"),
    make_node("up", "far"),
    make_node("each", "list", "up", for_each="list.items", config={"x": "{{ far }}"}),
    make_node("after", "each", "list"),
)


def stem(key: str | None) -> str:
    """Returns the key without its unique part."""
    return (key or "").rpartition("/")[0]


def tasks(driver: CoreDriver, name: str) -> list[TaskMessage]:
    return [task for token, task in driver.tasks.items() if token.node_id == name]


def started(driver: CoreDriver) -> list[MapStarted]:
    events = [event for entry in driver.histories[ROOT] for event in decode_entry(entry).events]
    return [event for event in events if isinstance(event, MapStarted)]


def test_a_large_input_is_offloaded_before_the_map_and_each_item_refers_to_it() -> None:
    driver = CoreDriver(OF_INPUT, policy=POLICY).start(INPUT)

    names = {task.execution_input.blob for task in tasks(driver, "each")}
    [name] = names
    assert stem(name) == "e1/input/shared"
    assert driver.blobs[name or ""] == bytes(driver.root.input.data)
    assert tasks(driver, "each")[0].execution_input.size == driver.root.input.size
    assert len(driver.issued) == 3


def test_large_outputs_are_offloaded_for_items_and_inline_for_all_others() -> None:
    driver = CoreDriver(OF_NODES, policy=POLICY).start()

    driver.finish("far", LARGE)
    driver.finish("list", {"items": [1, 2, 3], "text": LARGE})
    driver.finish("up", "small")

    inputs = [task.inputs for task in tasks(driver, "each")]
    assert [list(names) for names in inputs] == [["list", "up", "far"]] * 3
    assert {stem(names[NodeId("list")].blob) for names in inputs} == {"e1/list/shared"}
    assert {stem(names[NodeId("far")].blob) for names in inputs} == {"e1/far/shared"}
    assert {names[NodeId("up")].blob for names in inputs} == {None}
    for item in range(3):
        driver.finish("each", item, item=item)
    [after] = tasks(driver, "after")
    assert after.inputs[NodeId("list")].blob is None


@pytest.mark.parametrize(
    ("count", "size", "is_shared"),
    [
        (0, 200, False),
        (1, 200, False),
        (3, 100, False),
        (4, 100, True),
        (2, 160, True),
        (50, 50, False),
        (50, 51, True),
    ],
)
def test_a_value_is_shared_if_it_is_large_and_its_copies_exceed_the_inline_limit(
    count: int, size: int, is_shared: bool
) -> None:
    definition = make_workflow(
        make_node("a"), make_node("each", "a", for_each=str([0] * count)), make_node("z", "a")
    )
    driver = CoreDriver(definition, policy=POLICY).start()

    driver.finish("a", "x" * (size - 2))

    [event] = started(driver)
    assert list(event.shared) == (["a"] if is_shared else [])


def test_an_engine_shares_values_above_8_kb() -> None:
    policy = EnginePolicy()

    assert policy.shared_bytes_max == SHARED_BYTES_MAX == 8 * 1024
    assert policy.inline_bytes_max == INLINE_BYTES_MAX


@pytest.mark.parametrize("cause", ["after a takeover", "at once"])
def test_a_later_attempt_of_an_item_refers_to_the_same_blob(cause: str) -> None:
    retry = RetryPolicy(initial_delay=5, jitter=False)
    driver = CoreDriver(
        make_workflow(make_node("each", for_each="input.items", retry=retry)), policy=POLICY
    ).start(INPUT)

    if cause == "after a takeover":
        driver.take_over(tasks_survive=True)
    driver.fail("each", TRANSIENT, item=1)
    driver.advance(5)
    driver.lose("each", item=0)

    names = {task.execution_input.blob for task in tasks(driver, "each")}
    assert [*map(stem, names)] == ["e1/input/shared"]


def test_values_shared_by_one_map_are_not_written_again_for_the_next() -> None:
    definition = make_workflow(
        make_node("one", for_each="input.items"), make_node("two", "one", for_each="input.items")
    )
    driver = Counted(definition, policy=POLICY)
    driver.start(INPUT)

    driver.take_over(tasks_survive=True)
    for item in range(3):
        driver.finish("one", item, item=item)

    assert [list(effect.values) for effect in driver.shared] == [["input"]]
    names = {task.execution_input.blob for task in tasks(driver, "two")}
    assert [*map(stem, names)] == ["e1/input/shared"]


def test_a_map_whose_items_no_worker_runs_shares_nothing() -> None:
    sub = make_node(
        "sub", handler="workflow", child=make_workflow(make_node("a")), for_each="input.items"
    )

    driver = CoreDriver(make_workflow(sub), policy=POLICY).start(INPUT)

    assert [list(event.shared) for event in started(driver)] == [[]]


def test_an_existing_blob_is_not_copied() -> None:
    driver = CoreDriver(OF_NODES, policy=POLICY).start()
    driver.finish("far", 1)
    driver.finish("up", 2)

    driver.finish_with_blob("list", {"items": [1, 2, 3], "text": LARGE})

    assert [list(event.shared) for event in started(driver)] == [[]]
    blobs = {task.inputs[NodeId("list")].blob for task in tasks(driver, "each")}
    assert len(blobs) == 1
    assert None not in blobs


def test_the_outputs_of_a_signal_and_of_a_map_are_shared_too() -> None:
    ok = make_node("ok", handler="wait_for_signal", config={"signal": "go"})
    first_map = make_node("one", "ok", for_each="[1, 2]")
    two = make_node("two", "one", "ok", for_each="[1, 2, 3, 4]")
    driver = CoreDriver(make_workflow(ok, first_map, two), policy=POLICY).start()

    driver.send(
        SendSignal(execution_id=ROOT, name="go", payload=make_inline_value(LARGE), signal_id="s1")
    )
    for item in range(2):
        driver.finish("one", "y" * 50, item=item)

    [first, second] = started(driver)
    assert list(first.shared) == []
    assert list(second.shared) == ["one", "ok"]
    [key] = [key for key in driver.blobs if stem(key) == "e1/one/shared"]
    assert driver.blobs[key] == b'["' + b"y" * 50 + b'","' + b"y" * 50 + b'"]'


def test_a_blob_written_after_a_rollback_has_another_name() -> None:
    """A worker that has read the former blob keeps it in its cache under its name."""
    names: list[str | None] = []
    for life in ("first", "second"):
        driver = CoreDriver(OF_INPUT, policy=POLICY, nonces=life).start(INPUT)
        names += {task.execution_input.blob for task in tasks(driver, "each")}

    assert len(set(names)) == 2


def test_a_large_output_of_a_map_or_an_execution_has_a_new_name_after_a_rollback() -> None:
    policy = EnginePolicy(inline_bytes_max=9)
    names = []
    for life in ("first", "second"):
        definition = make_workflow(make_node("each", for_each="[1, 2]"), output="{{ each }}")
        driver = CoreDriver(definition, policy=policy, nonces=life).start()
        for item in range(2):
            driver.finish("each", "y" * 9, item=item)
        names += list(driver.blobs)

    assert [*map(stem, names)] == ["e1/each/joined", "e1/output"] * 2
    assert len(set(names)) == 4


class Counted(CoreDriver):
    """Records which values were offloaded."""

    def __init__(self, definition: Workflow, *, policy: EnginePolicy) -> None:
        super().__init__(definition, policy=policy)
        self.shared: list[ShareValues] = []

    def _apply(self, effect: Effect, following: Any) -> None:
        if isinstance(effect, ShareValues):
            self.shared.append(effect)
        super()._apply(effect, following)


class SlowStore(Counted):
    """Writes offloaded values only when `write` is called."""

    def _apply(self, effect: Effect, following: Any) -> None:
        if isinstance(effect, ShareValues):
            self.shared.append(effect)
        else:
            super()._apply(effect, following)

    def write(self) -> None:
        for effect in self.shared:
            values = {name: make_inline_value(LARGE) for name in effect.values}
            self.send(ValuesShared(execution_id=ROOT, values=values))


def test_a_map_waits_for_a_slow_store_and_begins_once() -> None:
    driver = SlowStore(OF_INPUT, policy=POLICY)
    driver.start(INPUT)
    assert driver.issued == []

    driver.send(BlobLoaded(execution_id=ROOT))
    driver.take_over(tasks_survive=True)
    assert driver.issued == []
    driver.write()

    assert len(driver.shared) > 1
    assert len(started(driver)) == 1
    assert len(driver.issued) == 3


def test_a_map_that_is_cancelled_while_its_values_are_written_does_not_begin() -> None:
    driver = SlowStore(OF_INPUT, policy=POLICY)
    driver.start(INPUT)

    driver.cancel()
    driver.write()

    assert driver.root.state is ExecutionState.CANCELLED
    assert driver.root.nodes[0].state is NodeState.CANCELLED
    assert driver.issued == []


def test_a_value_that_is_being_written_is_not_written_again_for_another_map() -> None:
    maps = [make_node(f"each{n}", f"a{n}", for_each="input.items") for n in range(5)]
    driver = SlowStore(make_workflow(*[make_node(f"a{n}") for n in range(5)], *maps), policy=POLICY)
    driver.start(INPUT)

    for n in range(5):
        driver.finish(f"a{n}", LARGE * 2)
    driver.send(BlobLoaded(execution_id=ROOT))
    driver.write()

    assert [list(effect.values) for effect in driver.shared] == [
        ["input", "a0"],
        ["a1"],
        ["a2"],
        ["a3"],
        ["a4"],
    ]
    assert len(started(driver)) == 5
    assert len(driver.issued) == 5 + 15
