"""`runnel batch`: many executions of one workflow, continued after an interruption."""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.session.batch_output import OutputFile
from tests.e2e.program import DEADLINE_S, Program, clean_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

STEPS = """
import asyncio
from pathlib import Path

async def work(log, n, nap):
    await asyncio.sleep(nap)
    with Path(log).open("a") as file:
        print(n, file=file)
    if n < 0 and not Path(f"{log}.fixed").exists():
        raise ValueError(f"{n} is negative")
    return {"twice": 2 * n}
"""


def make_flow(program: Program, nap: float) -> dict[str, Any]:
    args = {"log": str(program.log), "n": "{{ input.n }}", "nap": nap}
    config = {"function": "batched:work", "args": args}
    return {"name": "doc", "nodes": [{"id": "work", "handler": "python", "config": config}]}


def prepare(folder: Path, numbers: list[int], *, nap: float = 0.0) -> Program:
    program = Program(folder)
    (folder / "batched.py").write_text(STEPS)
    (folder / "doc.json").write_text(json.dumps(make_flow(program, nap)))
    lines = [json.dumps({"n": number}) for number in numbers]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    return program


def count_runs(program: Program) -> Counter[int]:
    """Counts for each document how often its function finished."""
    text = program.log.read_text() if program.log.exists() else ""
    return Counter(map(int, text.split()))


CALL = ("batch", "doc.json", "--inputs", "docs.jsonl")
WITH_OUTPUT = (*CALL, "--output", "results.jsonl")


def list_document_lines(path: Path) -> list[int]:
    """Returns the line numbers of the documents in a file of results, without a partial line."""
    return sorted(json.loads(line)["line"] for line in path.read_text().split("\n")[:-1])


def test_each_document_becomes_an_execution_with_a_result(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, -2, 3, 3])

    done = program.run(*CALL, "--output", "results.jsonl", "--label", "team=a")

    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert done.returncode == 1
    assert done.stdout.startswith("docs.jsonl: 4 documents: 3 completed, 1 failed\n")
    assert "line 2 (k" in done.stderr
    assert "ValueError: -2 is negative" in done.stderr
    assert {result["line"]: result["output"] for result in results} == {
        1: {"twice": 2},
        2: None,
        3: {"twice": 6},
        4: {"twice": 6},
    }
    (failed,) = [result for result in results if result["status"] == "FAILED"]
    assert "-2 is negative" in failed["error"]
    assert count_runs(program) == {1: 1, -2: 1, 3: 2}
    listed = program.documents("list")
    assert [execution["labels"]["team"] for execution in listed] == ["a"] * 4


@pytest.mark.parametrize("output", ["docs.jsonl", "./doc.json", "linked.jsonl"])
def test_an_output_that_would_overwrite_its_source_is_refused(tmp_path: Path, output: str) -> None:
    program = prepare(tmp_path, [1])
    (tmp_path / "linked.jsonl").symlink_to("docs.jsonl")
    before = {path: path.read_text() for path in tmp_path.glob("doc*.json*")}

    done = program.run(*CALL, "--output", output)

    assert (done.returncode, count_runs(program)) == (2, {})
    assert f"--output {Path(output)}: the results would overwrite " in done.stderr
    assert {path: path.read_text() for path in before} == before


def test_a_file_of_results_is_either_complete_or_unchanged(tmp_path: Path) -> None:
    program, results = prepare(tmp_path, [1, 2]), tmp_path / "results.jsonl"
    program.run(*CALL, "--output", "results.jsonl")
    complete = results.read_text()
    (tmp_path / "doc.json").write_text(json.dumps(make_flow(program, 0.001)))

    refused = program.run(*CALL, "--output", "results.jsonl")

    assert (refused.returncode, results.read_text()) == (2, complete)
    assert len(complete.splitlines()) == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_file_of_results_has_one_writer(tmp_path: Path) -> None:
    program, output = prepare(tmp_path, [1]), OutputFile(tmp_path / "results.jsonl")

    refused = program.run(*WITH_OUTPUT)
    output.commit()
    done = program.run(*WITH_OUTPUT)

    assert (refused.returncode, done.returncode) == (2, 0)
    assert (
        "--output results.jsonl: another process writes this file; name another" in refused.stderr
    )
    assert list_document_lines(tmp_path / "results.jsonl") == [1]


def test_results_can_be_written_to_a_pipe(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1])

    done = program.run(*CALL, "--output", "/dev/stderr")

    assert done.returncode == 0
    assert '"output": {"twice": 2}' in done.stderr


def test_a_full_disk_under_the_results_is_reported_in_a_sentence(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1])

    done = program.run(*CALL, "--output", "/dev/full")

    assert done.returncode == 1
    assert (
        "error: --output /dev/full: the file can't be written: No space left on device"
        in done.stderr
    )
    assert "finished documents are stored: continue with the same command" in done.stderr
    assert program.run(*CALL, "--output", "/dev/null").returncode == 0


def test_a_batch_runs_once_and_retry_failed_reruns_the_failures(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, -2])
    program.run(*CALL)
    letters = program.run("dlq", "list", "--json").stdout.splitlines()
    again = json.loads(program.run(*CALL, "--json").stdout)
    failing_again = program.run(*CALL, "--retry-failed").returncode
    Path(f"{program.log}.fixed").touch()
    fixed = program.run(*CALL, "--retry-failed")
    unchanged = json.loads(program.run(*CALL, "--json", "--retry-failed").stdout)

    assert (again["completed"], again["failed"], again["done_before"]) == (1, 1, 2)
    assert (failing_again, fixed.returncode) == (1, 0)
    assert "2 completed\n  1 had ended before this run\n" in fixed.stdout
    assert (unchanged["completed"], unchanged["done_before"]) == (2, 2)
    assert unchanged["documents_per_hour"] == 0
    assert count_runs(program) == {1: 1, -2: 3}
    assert (len(letters), program.run("dlq", "list", "--json").stdout) == (1, "")


def test_only_documents_that_were_added_run_in_a_second_batch(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, 2])
    program.run(*CALL)
    (tmp_path / "docs.jsonl").write_text('{"n": 9}\n{"n": 2}\n{"n": 1}\n')

    done = program.run(*CALL)
    other = program.run(*CALL, "--name", "another")

    assert (done.returncode, other.returncode) == (0, 0)
    assert "  2 had ended before this run\n" in done.stdout
    assert "had ended before" not in other.stdout
    assert count_runs(program) == {1: 2, 2: 2, 9: 2}


def test_a_changed_workflow_or_document_is_not_mixed_into_a_batch(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1])
    program.run(*CALL, "--id-field", "n")
    (tmp_path / "docs.jsonl").write_text('{"n": 1, "m": 2}')
    document = program.run(*CALL, "--id-field", "n")
    (tmp_path / "docs.jsonl").write_text('{"n": 1}')
    (tmp_path / "doc.json").write_text(json.dumps(make_flow(program, 0.001)))
    workflow = program.run(*CALL, "--id-field", "n")

    assert (document.returncode, workflow.returncode) == (2, 2)
    assert "has the same id, but was submitted with another input" in document.stderr
    assert "but was submitted with version 1 of the workflow; give this" in workflow.stderr


async def test_a_killed_batch_continues_without_repeating_a_finished_document(
    tmp_path: Path,
) -> None:
    numbers = list(range(60))
    program = prepare(tmp_path, numbers, nap=0.1)
    async with program.running(*WITH_OUTPUT) as first:
        await wait_until(lambda: len(count_runs(program)) >= 10, 3 * DEADLINE_S)
        first.send(signal.SIGKILL)
        await first.wait()
    assert not (tmp_path / "results.jsonl").exists()
    finished = {execution["execution_id"] for execution in await list_completed(program)}

    done = await asyncio.to_thread(program.run, *WITH_OUTPUT, "--json")

    result = json.loads(done.stdout)
    assert (done.returncode, result["completed"]) == (0, 60)
    assert result["done_before"] == len(finished)
    assert len(finished) >= 5
    assert set(count_runs(program)) == set(numbers)
    # Up to 4 tasks run at a time. They may have finished without a stored result.
    assert count_runs(program).total() <= 64
    assert list_document_lines(tmp_path / "results.jsonl") == list(range(1, 61))
    assert not (tmp_path / "results.jsonl.part").exists()


async def test_an_interrupted_batch_stops_gently_and_can_be_continued(tmp_path: Path) -> None:
    numbers = list(range(48))
    program = prepare(tmp_path, numbers, nap=0.2)
    async with program.running(*WITH_OUTPUT) as first:
        await wait_until(lambda: len(count_runs(program)) >= 8, 3 * DEADLINE_S)
        first.send(signal.SIGINT)
        code, out, err = await first.wait()
    so_far = list_document_lines(tmp_path / "results.jsonl.part")
    done = await asyncio.to_thread(program.run, *WITH_OUTPUT)

    assert code == 130
    assert "stopping: running tasks may finish" in err
    assert "continue with the same command; results so far: results.jsonl.part" in err
    assert "Traceback" not in err
    assert f": {len(so_far)} completed, {48 - len(so_far)} unfinished" in out
    assert done.returncode == 0
    assert count_runs(program) == dict.fromkeys(numbers, 1)
    assert list_document_lines(tmp_path / "results.jsonl") == list(range(1, 49))


async def list_completed(program: Program) -> list[dict[str, Any]]:
    words = ("list", "--status", "completed", "--limit", "1000")
    return await asyncio.to_thread(program.documents, *words)


async def test_two_processes_share_a_batch_and_one_continues_when_the_other_is_killed(
    tmp_path: Path,
) -> None:
    numbers = list(range(60))
    program = prepare(tmp_path, numbers, nap=0.2)
    async with program.running(*CALL) as first, program.running(*CALL, "--json") as second:
        await wait_until(lambda: len(count_runs(program)) >= 30, 3 * DEADLINE_S)
        first.send(signal.SIGKILL)
        await first.wait()
        code, out, _ = await second.wait()

    assert (code, json.loads(out)["completed"]) == (0, 60)
    assert set(count_runs(program)) == set(numbers)
    assert count_runs(program).total() <= 64


async def test_documents_that_wait_for_a_signal_do_not_hold_up_the_others(tmp_path: Path) -> None:
    program = prepare(tmp_path, list(range(12)))
    flow = make_flow(program, 0.0)
    approve = {"id": "approve", "handler": "wait_for_signal", "dependencies": ["work"]}
    flow["nodes"].append({**approve, "config": {"signal": "approve"}})
    (tmp_path / "doc.json").write_text(json.dumps(flow))

    async with program.running(*CALL, "--in-flight", "2", "--json") as batch:
        await wait_until(lambda: len(count_runs(program)) == 12, 3 * DEADLINE_S)
        hint = await batch.read_until("12 wait for signal 'approve'; no other document is left")
        batch.send(signal.SIGINT)
        code, out, _ = await batch.wait()

    assert (code, json.loads(out)["waiting"], json.loads(out)["unfinished"]) == (130, 12, 12)
    assert "send a signal with: runnel signal " in hint


BATCH_PROGRAM = """
import asyncio, json, sys
import runnel

async def main():
    inputs = [{"n": n} for n in range(40)]
    flow = runnel.load_file("doc.json")
    async for result in runnel.run_many(flow, inputs, name="docs.jsonl", in_flight=4):
        print(json.dumps([result.index, result.output, result.is_from_earlier_run]), flush=True)

asyncio.run(main())
"""


async def test_the_batch_of_a_killed_program_continues_in_a_program_and_in_a_command(
    tmp_path: Path,
) -> None:
    program = prepare(tmp_path, list(range(40)), nap=0.05)
    (tmp_path / "feed.py").write_text(BATCH_PROGRAM)
    environment = {**clean_environment(), "PYTHONPATH": str(tmp_path)}

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "feed.py",
            cwd=tmp_path,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )

    killed = await start()
    await wait_until(lambda: len(count_runs(program)) >= 5, DEADLINE_S)
    killed.kill()
    await killed.wait()
    begun = count_runs(program).total()
    out, _ = await (await start()).communicate()
    done = program.run(*CALL, "--json")

    results = [json.loads(line) for line in out.splitlines()]
    assert sorted(result[0] for result in results) == list(range(40))
    assert all(result[1] == {"twice": 2 * result[0]} for result in results)
    assert begun < 40
    assert count_runs(program).total() <= 44
    assert json.loads(done.stdout)["done_before"] == 40
