"""Decorated workflows, run from Python on the embedded engine."""

import asyncio
import os
import re
from pathlib import Path

import pytest

import runnel
from runnel import WorkflowDAG, WorkflowFailedError
from runnel.app.embedded_engine import run_engine
from runnel.app.run_context import NESTING_LABEL, NESTING_MAX
from runnel.app.stores import open_store_session
from runnel.app.wiring import build_engine
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import SOURCE_LABEL
from runnel.client.idempotency import KEY_LABEL
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.engine.worker import runner as runner_module
from runnel.engine.worker import slots as slots_module
from runnel.errors import InputError, InvalidInputError
from runnel.ports.archive import ExecutionFilter
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.integration import decorated_flows as flows
from tests.waiting import wait_for_value, wait_until

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
    with pytest.raises(
        InvalidInputError, match=r"input\.least: expected a whole number, got 'three'"
    ):
        await runnel.run(flows.diamond, "a", least="three")  # type: ignore[arg-type]

    assert await list_summaries() == []


async def test_an_execution_has_labels_for_its_key_and_its_source_folder() -> None:
    await runnel.run(flows.diamond.run_options(key="monday", labels={"team": "a"}), "a")

    (summary,) = await list_summaries()
    assert summary.labels[KEY_LABEL] == "monday"
    assert summary.labels["team"] == "a"
    module = flows.__name__.replace(".", "/") + ".py"
    assert (Path(summary.labels[SOURCE_LABEL]) / module).samefile(flows.__file__)


async def test_an_execution_has_the_priority_of_its_options() -> None:
    await runnel.run(flows.diamond.run_options(priority=4), "a")

    (summary,) = await list_summaries()
    async with open_store_session(read_settings()) as session:
        assert (await session.client.get(summary.execution_id)).priority == 4


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


@pytest.mark.parametrize(
    ("flow", "count", "depth"),
    [(flows.levels, 8, 3), (flows.thread_levels, 3, 2), (flows.process_levels, 2, 1)],
)
async def test_tasks_that_run_executions_do_not_block_each_other(
    flow: "TracedWorkflow[[int], int]", count: int, depth: int
) -> None:
    narrow = flow.run_options(concurrency=1)  # type: ignore[attr-defined]

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(runnel.run(narrow, depth) for _ in range(count)))

    assert results == [depth + 1] * count


@pytest.mark.parametrize("flow", [flows.levels, flows.process_levels])
async def test_a_task_that_may_not_wait_yet_begins_again_without_a_failed_attempt(
    flow: "TracedWorkflow[[int], int]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "LENT_MAX", 1)
    monkeypatch.setattr(runner_module, "WAITING_RETRY_S", 0.05)

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(runnel.run(flow, 2) for _ in range(3)))

    assert results == [3] * 3
    async with open_store_session(read_settings()) as session:
        listed = await session.client.list_executions(ExecutionFilter())
        histories = [await session.client.history(summary.execution_id) for summary in listed]
    assert len(histories) == 9
    assert "TooManyWaitingTasksError" not in str(histories)


async def test_a_label_with_a_reserved_name_is_refused() -> None:
    labelled = flows.levels.run_options(labels={NESTING_LABEL: "abc"})

    with pytest.raises(InputError, match=r"labels: 'runnel.nesting' begins with 'runnel.', which"):
        await runnel.run(labelled, 1)
    with pytest.raises(InputError, match=r"labels: 'runnel.x' begins with 'runnel.', which"):
        async for _ in runnel.run_many(flows.levels, [{"depth": 1}], labels={"runnel.x": "1"}):
            pass


async def test_tasks_that_run_executions_are_nested_up_to_a_limit() -> None:
    with pytest.raises(WorkflowFailedError):
        await runnel.run(flows.levels, NESTING_MAX + 1)
    summaries = await list_summaries()
    result = await runnel.run(flows.levels, NESTING_MAX)

    levels = {int(summary.labels.get(NESTING_LABEL, "0")): summary for summary in summaries}
    assert sorted(levels) == list(range(NESTING_MAX + 1))
    assert "InputError: runnel.run: workflow 'levels' would run 21 levels" in str(
        levels[NESTING_MAX].error
    )
    assert result == NESTING_MAX + 1


async def test_a_timeout_ends_the_wait_of_a_task_in_a_thread(tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    with pytest.raises(WorkflowFailedError, match="TaskTimeoutError"):
        await runnel.run(flows.holding, str(notes))

    await wait_until(lambda: notes.exists() and notes.read_text() == "cleaned up\n")


async def test_a_process_that_serves_the_data_directory_starts_submitted_executions(
    data_dir: Path,
) -> None:
    engine = await build_engine(read_settings(), serves=True)
    async with run_engine(engine, adopts=True):
        await engine.recovered.wait()
        execution_id = ExecutionId(await runnel.submit(flows.diamond, "a/b"))
        header = await engine.client.wait_for_end(execution_id, timeout_s=30)

    assert header.state is ExecutionState.COMPLETED
    assert len(list(data_dir.glob("p*.lock"))) == 1  # no partition that the engine must find first


async def test_an_execution_is_submitted_beside_an_engine_that_runs_only_its_own_executions(
    data_dir: Path,
) -> None:
    async with run_engine(await build_engine(read_settings())) as engine:
        await engine.recovered.wait()
        await runnel.submit(flows.diamond, "a/b")

    (summary,) = await list_summaries()
    assert summary.status is ExecutionState.PENDING
    assert len(list(data_dir.glob("p*.lock"))) == 1  # no process holds the partition of submits


async def wait_until_status(execution_id: str, status: ExecutionState) -> None:
    async def has_status() -> bool | None:
        statuses = {summary.execution_id: summary.status for summary in await list_summaries()}
        return True if statuses.get(ExecutionId(execution_id)) is status else None

    await wait_for_value(has_status, every_s=0.02, deadline_s=30)


@pytest.mark.parametrize("settings", [{}, {"concurrency": 2}])
@pytest.mark.parametrize("place", ["same loop", "thread"])
async def test_an_execution_is_submitted_to_the_engine_that_this_process_has_open(
    tmp_path: Path, place: str, settings: dict[str, int]
) -> None:
    flow = flows.diamond.run_options(**settings)  # type: ignore[arg-type]
    running = asyncio.create_task(runnel.run(flows.waiting, str(tmp_path / "go")))
    if place == "thread":
        await wait_until((tmp_path / "go.started").exists)
        execution_id = await asyncio.to_thread(flow.submit, "a/b")
    else:
        # The task begins after the first one, whose engine is still being opened.
        execution_id = await asyncio.create_task(runnel.submit(flow, "a/b"))

    await wait_until_status(execution_id, ExecutionState.COMPLETED)
    assert not running.done()
    (tmp_path / "go").touch()
    await running


async def test_a_submitted_execution_survives_the_end_of_the_engine_of_this_process(
    tmp_path: Path,
) -> None:
    running = asyncio.create_task(runnel.run(flows.waiting, str(tmp_path / "go")))
    keyed = flows.held.run_options(key="later")
    execution_id = await asyncio.create_task(runnel.submit(keyed))
    await wait_until_status(execution_id, ExecutionState.RUNNING)
    (tmp_path / "go").touch()
    await running  # does not wait for the other execution

    await wait_until_status(execution_id, ExecutionState.RUNNING)
    async with open_store_session(read_settings()) as session:
        await session.client.signal(ExecutionId(execution_id), "go", "sent")
    assert await runnel.run(keyed) == "sent"
    assert len(await list_summaries()) == 2


async def test_a_value_of_a_skipped_node_is_null_wherever_it_is_returned() -> None:
    result = await runnel.run(flows.skipped_values, "a b")

    assert result == {
        "skipped": None,
        "unmet": None,
        "item": None,
        "list": [None, None],
        "default": ["s", "u"],
    }
    assert await runnel.run(flows.skipped_alone, "a b") is None


async def test_a_default_replaces_null_and_missing_values_only() -> None:
    assert await runnel.run(flows.defaults_for_null) == [0, ["d", 0, "d"]]


def test_outside_of_a_workflow_a_default_replaces_none() -> None:
    assert [runnel.default(value, 1) for value in (None, 0, "")] == [1, 0, ""]


FILE = """
name: hello
nodes:
- {id: a, handler: output, config: {v: "{{ input.user }} {{ input.n }}"}}
"""


async def test_a_workflow_file_takes_its_input_as_an_object_and_as_names() -> None:
    Path("hello.yaml").write_text(FILE)
    hello = runnel.load_file("hello.yaml")

    assert await runnel.run(hello, {"user": "Ada", "n": 1}) == {"v": "Ada 1"}
    assert await runnel.run(hello, {"user": "Ada"}, n=2) == {"v": "Ada 2"}
    assert await runnel.run(hello, user="Ada", n=3) == {"v": "Ada 3"}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((3,), 'such as user="Ada"; got 3'),
        (({}, {}), 'such as user="Ada"; got 2 values'),
        (({"user": "Ada"},), "'user' is given twice"),
    ],
)
async def test_a_wrong_input_of_a_workflow_file_is_refused(
    args: tuple[object, ...], problem: str, data_dir: Path
) -> None:
    Path("hello.yaml").write_text(FILE)

    with pytest.raises(InputError, match=re.escape(problem)):
        await runnel.run(runnel.load_file("hello.yaml"), *args, user="Bob")  # type: ignore[call-overload]  # wrong on purpose

    assert not data_dir.exists()
