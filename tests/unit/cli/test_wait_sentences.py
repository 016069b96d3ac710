"""Sentences about nodes and map items that already wait when a command starts to watch."""

import re

import pytest

from runnel.backends.memory import MemoryBackend
from runnel.cli.render.progress import ExecutionProgress, apply_events
from runnel.cli.render.progress_view import WAITING_NODES_MAX, PlainProgressView
from runnel.cli.render.sentences import describe_change, describe_reason
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.stuck import list_node_waits
from runnel.client.execution_views import load_execution_view
from runnel.core import events as e
from runnel.core.ids import NodeId, Nonce
from runnel.core.values import NULL
from runnel.testing.clock import FakeClock, FakeIds
from runnel.views.execution import (
    ExecutionView,
    summarize_waiting_items,
)
from tests.core_driver import CoreDriver, make_node, make_workflow

DIED = "2 processes died while they held it"


def start_map(items: int) -> CoreDriver:
    return CoreDriver(make_workflow(make_node("m", for_each=str(list(range(items)))))).start()


async def load_view(driver: CoreDriver) -> ExecutionView:
    backend = MemoryBackend(FakeClock(driver.now), FakeIds("store"))
    return await load_execution_view(driver.root, backend.blobs)


def lose_twice(driver: CoreDriver, name: str, *items: int) -> None:
    for _ in range(2):
        for item in items or (-1,):
            driver.lose(name, item=item)


def capture_progress(driver: CoreDriver, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines that a new plain view prints, with `…` instead of durations."""
    PlainProgressView(FakeClock(driver.now), CommandHints()).add(
        ExecutionProgress.from_execution(driver.root)
    )
    return re.sub(r"\d\.\d s", "… s", capsys.readouterr().err).splitlines()[1:]


def test_a_node_that_waits_after_crashes_shows_for_how_long(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"))).start()

    lose_twice(driver, "a")

    assert capture_progress(driver, capsys) == [f"a: attempt 3 in … s, after {DIED}"]


def test_an_execution_without_waits_prints_no_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a"))).start()

    assert capture_progress(driver, capsys) == []


def test_only_the_first_of_many_waiting_nodes_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = [
        make_node(f"n{i}", handler="wait_for_signal", config={"signal": "go"})
        for i in range(WAITING_NODES_MAX + 2)
    ]
    driver = CoreDriver(make_workflow(*waiting)).start()

    lines = capture_progress(driver, capsys)

    assert lines[:2] == ["n0: waits for signal 'go'", "n0: continue with: runnel signal e1 go"]
    assert lines[-1] == "and 2 more nodes that wait"
    assert len(lines) == 2 * WAITING_NODES_MAX + 1


async def test_a_map_whose_items_all_wait_shows_the_next_item(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = start_map(2)
    lose_twice(driver, "m", 0, 1)

    [line] = capture_progress(driver, capsys)
    [stuck] = list_node_waits(await load_view(driver), [], is_owned=True)

    first = min(driver.root.maps[0].active.items(), key=lambda entry: entry[1].due or 0.0)
    text = f"m[{first[0]}] (and 1 more): its next attempt ({DIED})"
    assert line == f"m: 0 of 2 items, waits … s more for {text}"
    assert (stuck.waits_for, stuck.due) == (text, first[1].due)


async def test_a_map_with_a_running_item_does_not_wait() -> None:
    driver = start_map(2)
    lose_twice(driver, "m", 1)

    [stuck] = list_node_waits(await load_view(driver), [], is_owned=True)

    assert stuck.waits_for == "its own code"
    [stuck] = list_node_waits(await load_view(driver), [], is_owned=False)
    assert stuck.waits_for == "a process that runs it again"
    assert summarize_waiting_items("m", driver.root.maps[0]) is None


QUEUED = e.NodeQueued(node=NodeId("m"), item=0, attempt=3, nonce=Nonce("n"))
DONE = e.NodeCompleted(node=NodeId("m"), item=0, output=NULL)


@pytest.mark.parametrize(("event", "settled"), [(QUEUED, 0), (DONE, 1)])
def test_the_wait_of_a_map_disappears_when_an_item_continues(
    event: e.AnyEvent, settled: int
) -> None:
    driver = start_map(2)
    lose_twice(driver, "m", 0, 1)
    progress = ExecutionProgress.from_execution(driver.root)
    line = progress.lines["m"]
    before = describe_reason(line, driver.now)

    apply_events(progress, driver.now, [event])

    assert before.endswith(f": its next attempt ({DIED})")
    assert (describe_reason(line, driver.now), describe_change(line, driver.now)) == (
        "",
        f"m: {settled} of 2 items",
    )


def test_a_map_of_children_shows_which_child_it_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    child = make_workflow(make_node("work"))
    driver = CoreDriver(
        make_workflow(make_node("m", for_each="[1, 2]", handler="workflow", child=child))
    ).start()

    assert capture_progress(driver, capsys) == [
        "m: 0 of 2 items, waits for m[0] (and 1 more): child execution e1.m.0.1"
    ]
