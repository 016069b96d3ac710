"""A node that crashes its process fails at a limit, and the other nodes still complete."""

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runnel.core.retry import SUSPECT_LOSSES
from tests.e2e.program import DEADLINE_S, Program
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

LIMIT = 3
KILLED = 9
TRUE_TEXT = f"{LIMIT + 1} processes died while they held this task and no other task"
STEPS = """
import os
from pathlib import Path
from threading import Event

def die():
    os._exit(9)

def say_and_die():
    print("my last words")
    os._exit(9)

def work(file, name, seconds):
    with Path(file).open("a") as log:
        print(name, file=log)
    Event().wait(seconds)
    return name
"""


def make_working_node(name: str, *parents: str, seconds: float = 0.0) -> dict[str, Any]:
    arguments = {"file": "{{ input.file }}", "name": name, "seconds": seconds}
    config = {"function": "crashing:work", "args": arguments}
    return {"id": name, "handler": "python", "dependencies": list(parents), "config": config}


def make_crashing_node(name: str) -> dict[str, Any]:
    return {"id": name, "handler": "python", "config": {"function": "crashing:die"}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "crashing.py").write_text(STEPS)
    return Program(tmp_path)


def run_and_resume(program: Program, *nodes: dict[str, Any], slots: int = 4) -> list[int]:
    """Runs the nodes, then resumes them until a command survives; returns the exit codes."""
    document = {"name": "crashing", "on_failure": "continue", "nodes": nodes}
    (program.folder / "crashing.json").write_text(json.dumps(document))
    variables = {"WORKER_CONCURRENCY": str(slots)}
    codes = [
        program.run("run", "crashing.json", "-i", f"file={program.log}", **variables).returncode
    ]
    resumes_max = 1 + (LIMIT + 1) * len(nodes)
    while codes[-1] == KILLED and len(codes) <= resumes_max:
        codes.append(program.run("resume", **variables).returncode)
    return codes


def read_states(program: Program) -> dict[str, str]:
    [shown] = program.documents("show", "@last")
    return {name: node["status"] for name, node in shown["nodes"].items()}


def read_error(program: Program, node: str) -> str:
    [shown] = program.documents("show", "@last")
    return str(shown["nodes"][node]["error"])


def test_a_node_that_kills_its_process_fails_at_the_limit(program: Program) -> None:
    codes = run_and_resume(program, make_crashing_node("killer"))

    assert codes == [KILLED] * SUSPECT_LOSSES + [1]
    assert read_states(program) == {"killer": "FAILED"}
    assert TRUE_TEXT in read_error(program, "killer")
    assert list((program.folder / ".runnel").glob("*.running")) == []


def test_other_nodes_complete_before_a_crashing_node_fails(program: Program) -> None:
    nodes = [
        make_working_node("early"),
        make_crashing_node("killer"),
        make_working_node("late"),
        make_working_node("after", "early", "late"),
    ]

    codes = run_and_resume(program, *nodes)

    assert codes == [KILLED] * SUSPECT_LOSSES + [1]
    assert read_states(program) == {
        "early": "COMPLETED",
        "killer": "FAILED",
        "late": "COMPLETED",
        "after": "COMPLETED",
    }
    assert Counter(program.log.read_text().split())["after"] == 1


def test_a_crashing_node_with_a_concurrency_key_fails_too(program: Program) -> None:
    keyed = {**make_crashing_node("killer"), "concurrency_key": "k"}

    codes = run_and_resume(program, keyed, {**make_working_node("other"), "concurrency_key": "k"})

    assert codes[-1] == 1
    assert read_states(program) == {"killer": "FAILED", "other": "COMPLETED"}


def test_two_crashing_nodes_fail_and_the_node_between_them_completes(program: Program) -> None:
    codes = run_and_resume(
        program, make_crashing_node("one"), make_working_node("quick"), make_crashing_node("two")
    )

    assert codes[-1] == 1
    assert read_states(program) == {"one": "FAILED", "quick": "COMPLETED", "two": "FAILED"}


def test_no_innocent_node_fails_beside_six_crashing_nodes(program: Program) -> None:
    innocents = [make_working_node(f"innocent{number}") for number in range(93)]
    poisons = [make_crashing_node(f"poison{number}") for number in range(6)]
    nodes = [*innocents]
    for number, poison in enumerate(poisons):
        nodes.insert(17 * number, poison)

    codes = run_and_resume(program, *nodes, slots=12)

    [shown] = program.documents("show", "@last")
    states = {name: node["status"] for name, node in shown["nodes"].items()}
    assert codes[-1] == 1
    assert states == {
        **{node["id"]: "COMPLETED" for node in innocents},
        **{node["id"]: "FAILED" for node in poisons},
    }
    for poison in poisons:
        assert TRUE_TEXT in str(shown["nodes"][poison["id"]]["error"])


def test_output_printed_before_the_process_died_is_not_lost(program: Program) -> None:
    config = {"function": "crashing:say_and_die"}
    document = {"name": "s", "nodes": [{"id": "last", "handler": "python", "config": config}]}
    (program.folder / "saying.json").write_text(json.dumps(document))

    done = program.run("run", "saying.json")

    assert done.returncode == KILLED
    assert "my last words" in done.stderr


async def test_a_node_does_not_fail_because_its_process_is_killed_from_outside(
    program: Program,
) -> None:
    document = {"name": "killed", "nodes": [make_working_node("sleeper", seconds=600.0)]}
    (program.folder / "killed.json").write_text(json.dumps(document))
    kills = SUSPECT_LOSSES + LIMIT + 1

    for number in range(kills):
        words = ("resume",) if number else ("run", "killed.json", "-i", f"file={program.log}")
        async with program.running(*words) as running:
            await wait_until(lambda: count_starts(program) > number, DEADLINE_S)  # noqa: B023
            running.send(signal.SIGKILL)
            await running.wait()

    assert count_starts(program) == kills
    assert read_states(program)["sleeper"] in {"QUEUED", "RUNNING"}


def count_starts(program: Program) -> int:
    return len(program.log.read_text().split()) if program.log.exists() else 0
