"""`runnel run`: results on stdout, progress on stderr, and exit codes."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

FIELDS = ["execution_id", "workflow", "version", "status", "output", "error", "nodes"]
NODE_FIELDS = ["status", "attempts", "output", "error", "started_at", "finished_at"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def without_times(text: str) -> str:
    return re.sub(r"\d+\.\d s", "… s", text)


def test_a_completed_run_prints_its_output_and_exits_with_zero(program: Program) -> None:
    done = program.run("run", "chain.json")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"y": 1})
    assert without_times(done.stderr).splitlines()[1:] == [
        "a: started",
        "a: completed in … s",
        "b: started",
        "b: completed in … s",
        "chain completed in … s",
    ]


def test_a_failed_run_says_why_and_exits_with_one(program: Program) -> None:
    done = program.run("run", "failing.json")

    assert (done.returncode, done.stdout) == (1, "")
    assert "a: failed: ValueError: it broke" in done.stderr.splitlines()
    assert "failing failed in … s: " in without_times(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_missing_secret_is_told_before_anything_runs(program: Program) -> None:
    node = {"id": "a", "handler": "output", "config": {"key": "{{ secrets.api_key }}"}}
    (program.folder / "keyed.json").write_text(json.dumps({"name": "keyed", "nodes": [node]}))
    warning = "warning: this process has no secret 'api_key'; set RUNNEL_SECRET_API_KEY"

    checked = program.run("validate", "keyed.json")
    done = program.run("run", "keyed.json")
    again = program.run("rerun", "@last")
    every = program.run("rerun", "--status", "FAILED", "--yes")
    (program.folder / "docs.jsonl").write_text("{}\n")
    batch = program.run("batch", "keyed.json", "--inputs", "docs.jsonl")
    given = program.run("validate", "keyed.json", RUNNEL_SECRET_API_KEY="k-123456789")

    assert (checked.returncode, checked.stderr.startswith(warning)) == (0, True)
    for run in (done, again, every, batch):
        assert run.stderr.startswith(warning)
    assert given.stderr == ""


def test_json_is_one_object_and_nothing_else(program: Program) -> None:
    document = program.documents("run", "chain.json", "--label", "team=red", "--priority", "9")[0]

    assert list(document)[: len(FIELDS)] == FIELDS
    assert list(document["nodes"]["a"])[: len(NODE_FIELDS)] == NODE_FIELDS
    assert document["status"] == "COMPLETED"
    assert document["nodes"]["b"]["output"] == {"y": 1}
    assert document["nodes"]["a"]["started_at"].endswith("Z")
    assert (document["labels"]["team"], document["priority"]) == ("red", 9)


async def test_output_of_user_code_goes_to_stderr(program: Program) -> None:
    arguments = ("run", "noted.json", "-i", f"file={program.log}", "--json")
    async with program.running(*arguments) as running:
        await running.read_until("said by user code")
        execution_id = running.lines[0].split()[1]
        program.run("signal", execution_id, "approve", "--payload", "by=ada")
        code, out, _ = await running.wait()

    assert code == 0
    assert json.loads(out)["output"] == {"by": "ada"}


def test_input_comes_from_assignments_a_file_or_stdin(program: Program) -> None:
    (program.folder / "input.yaml").write_text("x: 5\n")

    by_option = program.documents("run", "chain.json", "--input", "x=7")[0]
    by_file = program.documents("run", "chain.json", "--input-file", "input.yaml")[0]
    command = " ".join(program.command("run", "chain.json", "--input-file", "-"))
    by_stdin = program.run_shell(f"""echo '{{"x": 6}}' | {command}""")

    assert (by_option["output"], by_file["output"]) == ({"y": 7}, {"y": 5})
    assert json.loads(by_stdin.stdout) == {"y": 6}


async def test_an_interrupted_run_says_how_to_continue_and_exits_with_130(program: Program) -> None:
    async with program.running("run", "noted.json", "-i", f"file={program.log}") as running:
        await running.read_until("approve: waits for signal")
        running.send(signal.SIGINT)
        code, out, err = await running.wait()

    assert (code, out) == (130, "")
    execution_id = running.lines[0].split()[1]
    assert err.splitlines()[-1] == f"interrupted; continue with: runnel resume {execution_id}"


async def test_a_terminated_run_exits_with_143(program: Program) -> None:
    async with program.running("run", "noted.json", "-i", f"file={program.log}") as running:
        await running.read_until("approve: waits for signal")
        running.send(signal.SIGTERM)
        code, _, _ = await running.wait()

    assert code == 143


async def test_a_second_signal_does_not_wait_for_running_code(program: Program) -> None:
    async with program.running("run", "holding.json", "-i", f"file={program.log}") as running:
        await running.read_until("hold: started")
        running.send(signal.SIGINT)
        await running.read_until("stopping: running tasks may finish within 30 s")
        running.send(signal.SIGINT)
        code, _, err = await running.wait()

    assert code == 130
    assert err.splitlines()[0] == "stopping at once"


async def test_an_interrupted_run_prints_its_json_too(program: Program) -> None:
    arguments = ("run", "noted.json", "-i", f"file={program.log}", "--json")
    async with program.running(*arguments) as running:
        await running.read_until("approve: waits for signal")
        running.send(signal.SIGINT)
        code, out, _ = await running.wait()

    assert code == 130
    assert json.loads(out)["nodes"]["approve"]["waits_for"] == "signal 'approve'"


def test_a_reader_that_closes_its_pipe_does_not_stop_the_run(program: Program) -> None:
    command = " ".join(program.command("run", "chain.json"))
    piped = program.run_shell(f"{command} 2>&1 | head -n 1")

    assert piped.stdout.startswith("execution ")
    assert piped.stderr == ""
    assert program.documents("list")[0]["status"] == "COMPLETED"


def test_a_full_disk_under_stderr_does_not_stop_the_run(program: Program) -> None:
    ended = program.run_shell(f"{' '.join(program.command('run', 'chain.json'))} 2>/dev/full")

    assert json.loads(ended.stdout) == {"y": 1}
    assert program.documents("list")[0]["status"] == "COMPLETED"


def test_a_full_disk_under_stdout_is_reported_in_a_sentence(program: Program) -> None:
    ended = program.run_shell(f"{' '.join(program.command('schema'))} >/dev/full")

    assert ended.returncode == 1
    assert ended.stderr == (
        "error: the output can't be written: no space left on device; free some space\n"
    )


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_completes(program: Program, closed: str) -> None:
    ended = program.run_shell(f"{' '.join(program.command('run', 'chain.json'))} {closed}")

    assert ended.returncode == 0
    assert program.documents("list")[0]["status"] == "COMPLETED"


def test_a_closed_pipe_ends_a_command_without_an_error(program: Program) -> None:
    for _ in range(2):
        program.run("run", "chain.json")

    piped = program.run_shell(f"{' '.join(program.command('history', '@last'))} | head -n 1")

    assert piped.stderr == ""
    assert piped.stdout.startswith("TIME")
