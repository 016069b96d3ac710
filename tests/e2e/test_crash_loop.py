"""A node that takes its process down at once is found out, and its neighbours get their turn."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

LIMIT = 3
KILLED = 9
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


def working(name: str, *parents: str, seconds: float = 0.0) -> dict[str, Any]:
    arguments = {"file": "{{ input.file }}", "name": name, "seconds": seconds}
    config = {"function": "crashing:work", "args": arguments}
    return {"id": name, "handler": "python", "dependencies": list(parents), "config": config}


def deadly(name: str) -> dict[str, Any]:
    return {"id": name, "handler": "python", "config": {"function": "crashing:die"}}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "crashing.py").write_text(STEPS)
    return Program(tmp_path)


def crash(program: Program, *nodes: dict[str, Any]) -> list[int]:
    """Runs it, then resumes it until it ends by itself; the exit codes."""
    document = {"name": "crashing", "on_failure": "continue", "nodes": nodes}
    (program.folder / "crashing.json").write_text(json.dumps(document))
    limit = {"RUNNEL_CRASH_LOOP_LIMIT": str(LIMIT)}
    codes = [program.run("run", "crashing.json", "-i", f"file={program.log}", **limit).returncode]
    resumes_max = 1 + (LIMIT + 1) * len(nodes)
    while codes[-1] == KILLED and len(codes) <= resumes_max:
        codes.append(program.run("resume", **limit).returncode)
    return codes


def states(program: Program) -> dict[str, str]:
    [shown] = program.documents("show", "@last")
    return {name: node["state"] for name, node in shown["nodes"].items()}


def error_of(program: Program, node: str) -> str:
    [shown] = program.documents("show", "@last")
    return str(shown["nodes"][node]["error"])


def test_a_node_that_kills_its_process_at_once_fails_at_the_limit(program: Program) -> None:
    codes = crash(program, deadly("killer"))

    assert codes == [KILLED] * (LIMIT + 1) + [1]
    assert states(program) == {"killer": "FAILED"}
    assert f"{LIMIT + 1} processes died while they ran this task" in error_of(program, "killer")
    assert list((program.folder / ".runnel").glob("*.running")) == []


def test_neighbours_of_a_killer_end_before_it_is_found_out(program: Program) -> None:
    nodes = [working("early"), deadly("killer"), working("late"), working("after", "early", "late")]

    codes = crash(program, *nodes)

    assert codes == [KILLED] * (LIMIT + 1) + [1]
    assert states(program) == {
        "early": "COMPLETED",
        "killer": "FAILED",
        "late": "COMPLETED",
        "after": "COMPLETED",
    }
    assert Counter(program.log.read_text().split())["after"] == 1


def test_a_killer_that_needs_a_key_is_found_out_too(program: Program) -> None:
    keyed = {**deadly("killer"), "concurrency_key": "k"}

    codes = crash(program, keyed, {**working("other"), "concurrency_key": "k"})

    assert codes[-1] == 1
    assert states(program) == {"killer": "FAILED", "other": "COMPLETED"}


def test_two_killers_are_told_apart_from_their_neighbours(program: Program) -> None:
    codes = crash(program, deadly("one"), working("quick"), deadly("two"))

    assert codes[-1] == 1
    assert states(program) == {"one": "FAILED", "quick": "COMPLETED", "two": "FAILED"}


def test_what_was_printed_before_the_process_died_is_not_lost(program: Program) -> None:
    saying = {"function": "crashing:say_and_die"}
    document = {"name": "s", "nodes": [{"id": "last", "handler": "python", "config": saying}]}
    (program.folder / "saying.json").write_text(json.dumps(document))

    done = program.run("run", "saying.json")

    assert done.returncode == KILLED
    assert "my last words" in done.stderr
