"""`runnel batch`: many executions of one workflow, gone on with after any end."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import DEADLINE_S, Program
from tests.waiting import eventually

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


def flow(program: Program, nap: float) -> dict[str, Any]:
    args = {"log": str(program.log), "n": "{{ input.n }}", "nap": nap}
    config = {"function": "batched:work", "args": args}
    return {"name": "doc", "nodes": [{"id": "work", "handler": "python", "config": config}]}


def prepare(folder: Path, numbers: list[int], *, nap: float = 0.0) -> Program:
    program = Program(folder)
    (folder / "batched.py").write_text(STEPS)
    (folder / "doc.json").write_text(json.dumps(flow(program, nap)))
    lines = [json.dumps({"n": number}) for number in numbers]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    return program


def runs(program: Program) -> Counter[int]:
    """How often the code of each document has run to its end."""
    text = program.log.read_text() if program.log.exists() else ""
    return Counter(map(int, text.split()))


CALL = ("batch", "doc.json", "--inputs", "docs.jsonl")


def test_each_document_becomes_an_execution_with_a_result(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, -2, 3, 3])

    done = program.run(*CALL, "--output", "results.jsonl", "--label", "team=a")

    found = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert done.returncode == 1
    assert done.stdout.startswith("docs.jsonl: 4 documents: 3 completed, 1 failed\n")
    assert "line 2 (k" in done.stderr
    assert "ValueError: -2 is negative" in done.stderr
    assert {each["line"]: each["output"] for each in found} == {
        1: {"twice": 2},
        2: None,
        3: {"twice": 6},
        4: {"twice": 6},
    }
    (failed,) = [each for each in found if each["status"] == "FAILED"]
    assert "-2 is negative" in failed["error"]
    assert runs(program) == {1: 1, -2: 1, 3: 2}
    listed = program.documents("list")
    assert [each["labels"]["team"] for each in listed] == ["a"] * 4


def test_a_batch_is_done_once_and_what_failed_is_run_again_when_asked(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, -2])
    program.run(*CALL)
    again = json.loads(program.run(*CALL, "--json").stdout)
    still = program.run(*CALL, "--retry-failed").returncode
    Path(f"{program.log}.fixed").touch()
    fixed = program.run(*CALL, "--retry-failed")
    over = json.loads(program.run(*CALL, "--json", "--retry-failed").stdout)

    assert (again["completed"], again["failed"], again["done_before"]) == (1, 1, 2)
    assert (still, fixed.returncode) == (1, 0)
    assert "2 completed\n  1 were done before\n" in fixed.stdout
    assert (over["completed"], over["done_before"], over["documents_per_hour"]) == (2, 2, 0)
    assert runs(program) == {1: 1, -2: 3}


def test_documents_that_were_added_are_the_only_ones_that_are_run(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1, 2])
    program.run(*CALL)
    (tmp_path / "docs.jsonl").write_text('{"n": 9}\n{"n": 2}\n{"n": 1}\n')

    done = program.run(*CALL)
    other = program.run(*CALL, "--name", "another")

    assert (done.returncode, other.returncode) == (0, 0)
    assert "  2 were done before\n" in done.stdout
    assert "done before" not in other.stdout
    assert runs(program) == {1: 2, 2: 2, 9: 2}


def test_a_changed_workflow_or_document_is_not_mixed_into_a_batch(tmp_path: Path) -> None:
    program = prepare(tmp_path, [1])
    program.run(*CALL, "--id-field", "n")
    (tmp_path / "docs.jsonl").write_text('{"n": 1, "m": 2}')
    document = program.run(*CALL, "--id-field", "n")
    (tmp_path / "docs.jsonl").write_text('{"n": 1}')
    (tmp_path / "doc.json").write_text(json.dumps(flow(program, 0.001)))
    workflow = program.run(*CALL, "--id-field", "n")

    assert (document.returncode, workflow.returncode) == (2, 2)
    assert "has the same id, but was submitted with another input" in document.stderr
    assert "but was submitted with version 1 of the workflow; give this" in workflow.stderr


async def test_a_killed_batch_goes_on_without_repeating_a_finished_document(
    tmp_path: Path,
) -> None:
    numbers = list(range(60))
    program = prepare(tmp_path, numbers, nap=0.1)
    async with program.running(*CALL) as first:
        await eventually(lambda: len(runs(program)) >= 10, 3 * DEADLINE_S)
        first.send(signal.SIGKILL)
        await first.ends()
    finished = {each["execution_id"] for each in await completed(program)}

    done = await asyncio.to_thread(program.run, *CALL, "--json")

    result = json.loads(done.stdout)
    assert (done.returncode, result["completed"]) == (0, 60)
    assert result["done_before"] == len(finished)
    assert len(finished) >= 5
    assert set(runs(program)) == set(numbers)
    # What ran when it was killed may have run to its end without being stored; 4 do at a time.
    assert runs(program).total() <= 64


async def test_an_interrupted_batch_stops_gently_and_goes_on(tmp_path: Path) -> None:
    numbers = list(range(48))
    program = prepare(tmp_path, numbers, nap=0.2)
    async with program.running(*CALL) as first:
        await eventually(lambda: len(runs(program)) >= 8, 3 * DEADLINE_S)
        first.send(signal.SIGINT)
        code, out, err = await first.ends()
    done = await asyncio.to_thread(program.run, *CALL)

    assert code == 130
    assert "unfinished" in out
    assert "stopping: what runs may finish" in err
    assert "Traceback" not in err
    assert done.returncode == 0
    assert runs(program) == dict.fromkeys(numbers, 1)


async def completed(program: Program) -> list[dict[str, Any]]:
    words = ("list", "--status", "completed", "--limit", "1000")
    return await asyncio.to_thread(program.documents, *words)


async def test_two_processes_share_a_batch_and_one_goes_on_when_the_other_is_killed(
    tmp_path: Path,
) -> None:
    numbers = list(range(60))
    program = prepare(tmp_path, numbers, nap=0.2)
    async with program.running(*CALL) as first, program.running(*CALL, "--json") as second:
        await eventually(lambda: len(runs(program)) >= 30, 3 * DEADLINE_S)
        first.send(signal.SIGKILL)
        await first.ends()
        code, out, _ = await second.ends()

    assert (code, json.loads(out)["completed"]) == (0, 60)
    assert set(runs(program)) == set(numbers)
    assert runs(program).total() <= 64
