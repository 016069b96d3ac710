"""Decorated workflows, run from Python on the embedded engine."""

import asyncio
import os
from pathlib import Path

import pytest

import runnel
from runnel import WorkflowDAG, WorkflowFailedError
from runnel.app.stores import open_store_session
from runnel.authoring.functions import SOURCE_LABEL
from runnel.client.idempotency import KEY_LABEL
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError, InvalidInputError
from runnel.ports.archive import ExecutionFilter
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.integration import decorated_flows as flows
from tests.waiting import wait_until

ANSWER = [2, ["A?", "B?"]]


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sets the data directory by the environment, as for the command line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


async def list_summaries() -> list[ExecutionSummary]:
    async with open_store_session(read_settings()) as session:
        return list(await session.client.list_executions(ExecutionFilter()))


async def test_a_run_returns_the_result_of_the_workflow() -> None:
    assert await runnel.run(flows.diamond, "a/b") == ANSWER
    assert await runnel.run(flows.diamond, url="a/b", least=5) == [5, ["A?", "B?"]]


def test_synchronous_code_can_run_a_workflow() -> None:
    assert flows.diamond.run("a/b") == ANSWER


async def test_runs_at_the_same_time_share_one_engine(data_dir: Path) -> None:
    results = await asyncio.gather(*(runnel.run(flows.diamond, f"a/{n}") for n in range(20)))

    assert results == [[2, ["A?", f"{n}?"]] for n in range(20)]
    assert len(await list_summaries()) == 20
    assert len(list(data_dir.glob("p*.lock"))) == 1


async def test_a_skipped_task_gives_none() -> None:
    assert await runnel.run(flows.choosing, "short") == {
        "large": None,
        "small": "SHORT!",
        "both": [None, "SHORT!"],
        "was": False,
    }


async def test_a_cache_key_belongs_to_one_function() -> None:
    assert await runnel.run(flows.letters, "abc") == ["a", "c"]
    assert await runnel.run(flows.letters, "abc") == ["a", "c"]


async def test_workflows_run_inside_workflows() -> None:
    assert await runnel.run(flows.nested, ["a/b", "longer/c"]) == [
        [[7, ["A?", "B?"]], [7, ["LONGER?", "C?"]]],
        [None, "A/B!"],
    ]


async def test_a_task_runs_in_a_process_of_its_own() -> None:
    outcome = await runnel.run(flows.elsewhere)

    assert outcome["attempt"] == 1
    assert outcome["pid"] != os.getpid()


async def test_a_failure_is_raised_with_the_id_of_the_execution() -> None:
    with pytest.raises(WorkflowFailedError, match="LookupError: no such page") as caught:
        await runnel.run(flows.failing, "no such page")

    (summary,) = await list_summaries()
    assert caught.value.execution_id == summary.execution_id
    assert caught.value.status == ExecutionState.FAILED


async def test_a_wrong_input_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(InvalidInputError, match=r"input\.least: 'three' is not of type 'integer'"):
        await runnel.run(flows.diamond, "a", least="three")  # type: ignore[arg-type]

    assert await list_summaries() == []


async def test_an_execution_has_labels_for_its_key_and_its_source_folder() -> None:
    await runnel.run(flows.diamond.run_options(key="monday", labels={"team": "a"}), "a")

    (summary,) = await list_summaries()
    assert summary.labels[KEY_LABEL] == "monday"
    assert summary.labels["team"] == "a"
    module = flows.__name__.replace(".", "/") + ".py"
    assert (Path(summary.labels[SOURCE_LABEL]) / module).samefile(flows.__file__)


async def test_runs_with_the_same_key_share_one_execution(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    flow = flows.once.run_options(key="monday")

    results = await asyncio.gather(runnel.run(flow, str(notes)), runnel.run(flow, str(notes)))
    again = await runnel.run(flow, str(notes))
    other = await runnel.run(flows.once.run_options(key="tuesday"), str(notes))

    assert [*results, again, other] == ["ran"] * 4
    assert notes.read_text() == "ran\nran\n"
    assert len(await list_summaries()) == 2


async def test_a_run_with_the_key_of_a_failed_execution_raises_its_failure() -> None:
    flow = flows.failing.run_options(key="monday")
    for _ in range(2):
        with pytest.raises(WorkflowFailedError, match="LookupError: no"):
            await runnel.run(flow, "no")

    assert len(await list_summaries()) == 1


async def test_a_cancelled_run_is_resumed_by_its_key(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    flow = flows.approved.run_options(key="monday")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(runnel.run(flow, str(notes)))
        await wait_until(notes.exists)
        first.cancel()
    (summary,) = await list_summaries()
    assert summary.status is ExecutionState.RUNNING

    async with asyncio.TaskGroup() as group:
        second = group.create_task(runnel.run(flow, str(notes)))
        async with open_store_session(read_settings()) as session:
            await session.client.signal(summary.execution_id, "approve", {"by": "ada"})

    assert second.result() == ["ada", "after"]
    assert notes.read_text() == "before\nafter\n"


async def test_a_cancelled_run_does_not_wait_for_tasks(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(runnel.run(flows.hanging, str(notes)))
        await wait_until(notes.exists)
        began = loop.time()
        hanging.cancel()

    assert loop.time() - began < 10, "a task may take 30 s to end by itself"
    (summary,) = await list_summaries()
    assert summary.status is ExecutionState.RUNNING


async def test_a_submitted_execution_starts_with_a_later_run() -> None:
    flow = flows.diamond.run_options(key="monday")

    execution_id = await runnel.submit(flow, "a/b")

    (summary,) = await list_summaries()
    assert summary.execution_id == ExecutionId(execution_id)
    assert await runnel.run(flow, "a/b") == ANSWER


async def test_a_run_can_use_another_data_directory(tmp_path: Path, data_dir: Path) -> None:
    await runnel.run(flows.diamond.run_options(data_dir=tmp_path / "other", concurrency=1), "a")

    assert (tmp_path / "other").is_dir()
    assert not data_dir.exists()


async def test_documents_and_built_workflows_are_run_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "name: flow\nnodes: [{id: a, handler: output, config: {x: '{{ input.x }}'}}]"
    )
    dag = WorkflowDAG("built").add_node("a", "output", {"x": "{{ input.x }}"})

    assert await runnel.run(runnel.load_file(tmp_path / "flow.yaml"), x=1) == {"x": 1}
    assert await runnel.run(dag, x=2) == {"x": 2}


async def test_functions_and_handlers_are_refused_by_the_wrong_runner() -> None:
    with pytest.raises(InputError, match="step 'a' is a function of this process"):
        await runnel.run(WorkflowDAG().add_step("a", print))
    with pytest.raises(InputError, match="node 'a' names a handler, but WorkflowExecutor runs"):
        await runnel.WorkflowExecutor().execute(WorkflowDAG().add_node("a", "output"))
