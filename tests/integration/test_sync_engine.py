"""`runnel.Engine` in a `with` block: the same engine for code without an event loop."""

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import runnel
from runnel.core.states import ExecutionState
from runnel.errors import InputError, NotFoundError, WorkflowFailedError
from tests.e2e.program import DEADLINE_S, clean_environment
from tests.integration import engine_flows as flows

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_every_method_blocks_until_it_has_its_result(tmp_path: Path) -> None:
    with runnel.Engine() as engine:
        page = engine.run(flows.page, "a/b")
        execution = engine.submit(flows.approved, str(tmp_path / "notes"))
        engine.signal(execution, "approve", {"by": "ada"})
        result = engine.result(execution)
        view = engine.get(execution)
        events = list(engine.follow(execution))
        workflows = [summary.workflow for summary in engine.executions()]
        many = [result.output for result in engine.run_many(flows.doubled, [{"number": 2}])]
        letters, schedules = list(engine.dead_letters.list()), engine.schedules.list()

    assert page == flows.Page("a/b", 2)
    assert result == view.output == {"by": "ada", "said": "after"}
    assert events[-1].event == "ExecutionFinished"
    assert workflows == ["approved", "page"]
    assert many == [4]
    assert [*letters, *schedules] == []


def test_any_thread_may_call_the_engine_and_module_functions(data_dir: Path) -> None:
    with runnel.Engine() as engine, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda number: engine.run(flows.doubled, number), range(20)))
        others = list(threads.map(flows.doubled.run, range(20)))
        submitted = engine.result(flows.doubled.submit(4))

    assert results == others == [2 * number for number in range(20)]
    assert submitted == 8
    assert len(list(data_dir.glob("p*.lock"))) == 1, "another engine was opened"


def test_errors_reach_the_caller() -> None:
    with runnel.Engine() as engine:
        with pytest.raises(WorkflowFailedError, match="no such page"):
            engine.run(flows.failing)
        with pytest.raises(NotFoundError):
            engine.cancel("x")


def test_a_closed_engine_says_so() -> None:
    with runnel.Engine() as engine:
        pass

    with pytest.raises(InputError, match="is closed; open a new one"):
        engine.run(flows.doubled, 1)
    engine.close()


async def test_a_thread_with_an_event_loop_is_told_to_use_async_with() -> None:
    with pytest.raises(InputError, match=r"write 'async with runnel\.Engine\(\) as engine:'"):
        runnel.Engine().start()


def test_an_async_task_may_not_block_the_loop_of_its_engine() -> None:
    with runnel.Engine() as engine:

        async def block() -> None:
            engine.run(flows.doubled, 1)

        with pytest.raises(InputError, match="can't block it"):
            engine.portal.call(block)


def test_an_engine_without_a_block_is_drained_at_the_end_of_the_program(tmp_path: Path) -> None:
    """As in a web service whose server ends the worker process."""
    notes = tmp_path / "notes"
    program = (
        "import sys, time, runnel\n"
        "from pathlib import Path\n"
        "from tests.integration import engine_flows as flows\n"
        "engine = runnel.Engine().start()\n"
        f"engine.submit(flows.held, {str(notes)!r}, {str(notes)!r})\n"
        f"while not Path({str(notes)!r}).exists(): time.sleep(0.01)\n"
    )
    environment = clean_environment(RUNNEL_DATA_DIR=str(tmp_path / "data"), PYTHONPATH=str(ROOT))

    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=DEADLINE_S,
    )

    assert [line.split()[0] for line in notes.read_text().splitlines()] == ["begun", "ended"]


def test_a_forked_process_does_not_use_the_engine_of_its_parent(tmp_path: Path) -> None:
    """As with a server that forks its workers after it has imported the program."""
    with runnel.Engine() as engine:
        engine.run(flows.doubled, 1)
        result = tmp_path / "result"
        if (child := os.fork()) == 0:
            try:
                result.write_text(str(flows.doubled.run(2)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        numbers = engine.run(flows.doubled, 3)
        states = [summary.status for summary in engine.executions()]

    assert result.read_text() == "4"
    assert numbers == 6
    assert states == [ExecutionState.COMPLETED] * 3


def test_an_engine_may_follow_another_one_on_the_same_store() -> None:
    for number in (1, 2):
        with runnel.Engine() as engine:
            assert engine.run(flows.doubled, number) == 2 * number

    assert asyncio.run(runnel.run(flows.doubled, 3)) == 6
