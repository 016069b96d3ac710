"""A second engine on the same data directory resumes the executions of the first."""

from pathlib import Path

from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, get_node_states, open_engine, wait_for_end

WAIT = make_node("ok", "a", handler="wait_for_signal", config={"signal": "approve"})


async def test_a_sleep_continues_after_a_restart(tmp_path: Path) -> None:
    definition = make_workflow(
        make_node("nap", handler="sleep", config={"seconds": 0.3}), make_node("b", "nap")
    )
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(definition)

    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        view = await wait_for_end(second, execution_id)

    assert view.status == "COMPLETED"
    assert work.calls == ["b"]


async def test_a_waiting_node_receives_its_signal_after_a_restart(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(make_workflow(make_node("a"), WAIT))

    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        await second.client.signal(execution_id, "approve", "yes")
        view = await wait_for_end(second, execution_id)

    assert view.output == "yes"
    assert work.calls == ["a"]


async def test_an_early_signal_survives_a_restart(tmp_path: Path) -> None:
    work = WorkHandler()
    work.gate("a")
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(make_workflow(make_node("a"), WAIT))
        await work.entered["a"].wait()
        await first.client.signal(execution_id, "approve", "early")

    work.gates["a"].set()
    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        view = await wait_for_end(second, execution_id)

    assert view.output == "early"


async def test_a_task_interrupted_by_the_end_of_its_process_runs_again(tmp_path: Path) -> None:
    work = WorkHandler()
    work.gate("b")
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(
            make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))
        )
        await work.entered["b"].wait()

    work.gates["b"].set()
    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        view = await wait_for_end(second, execution_id)

    assert get_node_states(view) == {"a": "COMPLETED", "b": "COMPLETED", "c": "COMPLETED"}
    assert work.calls == ["a", "b", "b", "c"]


async def test_an_execution_of_a_finished_process_can_be_cancelled(tmp_path: Path) -> None:
    work = WorkHandler()
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(make_workflow(make_node("a"), WAIT))

    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        await second.client.cancel(execution_id)
        view = await wait_for_end(second, execution_id)

    assert view.status == "CANCELLED"


async def test_nodes_that_wait_for_a_concurrency_key_resume_after_a_restart(tmp_path: Path) -> None:
    work = WorkHandler()
    work.gate("n0")
    nodes = [make_node(f"n{i}", concurrency_key="k") for i in range(3)]
    async with open_engine("sqlite", tmp_path, work) as first:
        execution_id = await first.client.submit(make_workflow(*nodes))
        await work.entered["n0"].wait()

    work.gates["n0"].set()
    async with open_engine("sqlite", tmp_path, work, adopts=True) as second:
        view = await wait_for_end(second, execution_id)

    assert view.status == "COMPLETED"
    assert work.running_most == 1
