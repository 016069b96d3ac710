"""`runnel resume`, and commands for executions that another process runs."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.app.wiring import build_engine
from runnel.authoring.documents import load_file
from runnel.settings.model import Settings
from tests.e2e.program import Program, RunningProgram

pytestmark = pytest.mark.e2e


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
async def waiting(program: Program) -> AsyncIterator[RunningProgram]:
    """Yields a run whose first node is completed and whose second node waits for a signal."""
    async with program.running("run", "noted.json", "-i", f"file={program.log}") as running:
        await running.read_until("approve: continue with")
        yield running


def get_id(running: RunningProgram) -> str:
    return running.lines[0].split()[1]


async def kill(running: RunningProgram) -> None:
    running.send(signal.SIGKILL)
    await running.wait()


async def test_a_killed_run_is_resumed_and_settled_nodes_do_not_run_again(
    program: Program, waiting: RunningProgram
) -> None:
    await kill(waiting)

    program.run("signal", "@last", "approve", "--payload", "by=ada")
    resumed = program.run("resume")

    assert (resumed.returncode, json.loads(resumed.stdout)) == (0, {"by": "ada"})
    assert program.log.read_text() == "first\n"


async def test_resume_finds_the_functions_next_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    flows = Program(tmp_path / "flows")
    elsewhere = Program(tmp_path)
    (tmp_path / "steps.py").unlink()
    arguments = ("run", "flows/holding.json", "-i", f"file={flows.log}")
    async with elsewhere.running(*arguments) as running:
        await running.read_until("said by user code")
        await kill(running)

    async with elsewhere.running("resume") as resumed:
        await resumed.read_until("said by user code")
        await kill(resumed)

    assert flows.log.read_text() == "held\nheld\n"


async def test_resume_prints_one_object_per_execution(
    program: Program, waiting: RunningProgram
) -> None:
    async with program.running("run", "tidied.json") as other:
        await other.read_until("approve: continue with")
        await kill(other)
    await kill(waiting)
    for running in (waiting, other):
        program.run("signal", get_id(running), "approve", "--payload", "by=ada")

    documents = program.documents("resume")

    assert [document["execution_id"] for document in documents] == [get_id(waiting), get_id(other)]
    assert {document["status"] for document in documents} == {"COMPLETED"}


async def test_resume_of_one_execution_leaves_other_executions_alone(
    program: Program, waiting: RunningProgram
) -> None:
    async with program.running("run", "tidied.json") as other:
        await other.read_until("approve: continue with")
        await kill(other)
    await kill(waiting)
    program.run("signal", get_id(other), "approve")

    resumed = program.run("resume", get_id(other))

    assert resumed.returncode == 0
    states = {
        execution["execution_id"]: execution["status"] for execution in program.documents("list")
    }
    assert states == {get_id(waiting): "RUNNING", get_id(other): "COMPLETED"}


async def test_resume_creates_an_execution_whose_process_died_after_the_submission(
    program: Program,
) -> None:
    engine = await build_engine(Settings(data_dir=program.folder / ".runnel"))
    await engine.backend.claim_home_partition(engine.name)
    execution_id = await engine.client.submit(load_file(program.folder / "chain.json"))
    await engine.backend.close()

    resumed = program.documents("resume")

    assert [document["execution_id"] for document in resumed] == [execution_id]
    assert resumed[0]["status"] == "COMPLETED"


@pytest.mark.parametrize(("arguments", "code"), [(["resume"], 0), (["resume", "@last"], 1)])
async def test_resume_does_not_wait_for_executions_of_another_process(
    program: Program, waiting: RunningProgram, arguments: list[str], code: int
) -> None:
    done = program.run(*arguments)

    sentence = f"execution {get_id(waiting)} is being run by another process (pid {waiting.pid})"
    assert (done.returncode, done.stderr.splitlines()) == (code, [sentence])


def test_resume_without_unfinished_executions_is_not_an_error(program: Program) -> None:
    before = program.run("resume")
    program.run("run", "chain.json")
    after = program.run("resume")

    assert (before.returncode, after.returncode) == (0, 0)
    assert before.stderr == "nothing to resume: there is no data in '.runnel'\n"
    assert after.stderr == "nothing to resume\n"


async def test_a_signal_from_another_process_continues_the_run(
    program: Program, waiting: RunningProgram
) -> None:
    sent = program.run("signal", get_id(waiting)[:8], "approve", "--payload", '{"by": "bob"}')
    code, out, _ = await waiting.wait()

    assert sent.stdout == f"signal 'approve' sent to execution {get_id(waiting)}\n"
    assert (code, json.loads(out)) == (0, {"by": "bob"})


async def test_a_cancel_from_another_process_ends_the_run(
    program: Program, waiting: RunningProgram
) -> None:
    cancelled = program.run("cancel", "@last", "--reason", "enough")
    code, out, err = await waiting.wait()

    assert cancelled.stdout == f"execution {get_id(waiting)} is cancelled\n"
    assert (code, out) == (1, "")
    assert "Cancelled: enough" in err


async def test_a_cancel_takes_effect_when_no_process_runs_the_execution(
    program: Program, waiting: RunningProgram
) -> None:
    await kill(waiting)

    cancelled = program.run("cancel", "@last")

    assert cancelled.stdout == f"execution {get_id(waiting)} is cancelled\n"
    assert program.documents("show", "@last")[0]["status"] == "CANCELLED"


async def test_a_cancel_without_a_process_leaves_clean_up_to_resume(program: Program) -> None:
    async with program.running("run", "tidied.json") as running:
        await running.read_until("approve: continue with")
        await kill(running)

    cancelled = program.run("cancel", "@last")
    resumed = program.documents("resume")[0]

    assert f"continue with: runnel resume {get_id(running)}" in cancelled.stdout
    assert resumed["status"] == "CANCELLED"
    assert resumed["nodes"]["tidy"]["output"] == {"tidied": True}


async def test_stuck_shows_the_wait_and_the_process_of_an_execution(
    program: Program, waiting: RunningProgram
) -> None:
    owned = program.documents("list", "--stuck")[0]
    await kill(waiting)
    orphaned = program.documents("list", "--stuck")[0]

    assert (owned["pid"], orphaned["pid"]) == (waiting.pid, None)
    assert owned["waits"][0]["waits_for"] == "signal 'approve'"
    assert owned["commands"] == [f"runnel signal {get_id(waiting)} approve"]
    assert orphaned["commands"][-1] == f"runnel resume {get_id(waiting)}"


async def test_an_execution_can_be_inspected_while_another_process_runs_it(
    program: Program, waiting: RunningProgram
) -> None:
    commands = [
        program.run(*command)
        for command in (["list"], ["list", "--stuck"], ["show", "@last"], ["history", "@last"])
    ]

    assert [command.returncode for command in commands] == [0, 0, 0, 0]
    assert all(command.stdout for command in commands)
