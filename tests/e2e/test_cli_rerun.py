"""`runnel rerun` runs failed nodes again and takes over the results of the others."""

import json
from pathlib import Path

import pytest

from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

STEPS = """
from pathlib import Path

def read(log, year):
    with Path(log).open("a") as file:
        print("read", file=file)
    return {"year": year}

def check(gate, year):
    if not Path(gate).exists():
        raise ValueError("the gate is closed")
    return f"checked {year}"
"""
FLOW = {
    "name": "gated",
    "nodes": [
        {
            "id": "read",
            "handler": "python",
            "config": {
                "function": "gated:read",
                "args": {"log": "{{ input.log }}", "year": "{{ input.year }}"},
            },
        },
        {
            "id": "check",
            "handler": "python",
            "retry": {"max_retries": 0},
            "config": {
                "function": "gated:check",
                "args": {"gate": "{{ input.gate }}", "year": "{{ read.year }}"},
            },
        },
    ],
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Returns a folder with a run that failed at a gate; the gate is open now."""
    program = Program(tmp_path)
    (program.folder / "gated.py").write_text(STEPS)
    (program.folder / "gated.json").write_text(json.dumps(FLOW))
    gate = program.folder / "gate"
    words = ("-i", f"log={program.log}", "-i", f"gate={gate}", "-i", "year=2026")
    failed = program.run("run", "gated.json", *words)
    assert failed.returncode == 1
    assert "run the failed nodes again: runnel rerun " in failed.stderr
    gate.touch()
    return program


def test_only_failed_nodes_run_again(program: Program) -> None:
    again = program.run("rerun", "@last")

    assert (again.returncode, json.loads(again.stdout)) == (0, "checked 2026")
    assert program.log.read_text() == "read\n"
    shown = program.run("show", "@last").stdout
    former = json.loads(program.run("list", "--json").stdout.splitlines()[0])["rerun_of"]
    assert f"rerun of {former}" in shown
    assert f"(taken over from {former})" in shown


def test_a_changed_input_runs_all_nodes_and_keeps_the_other_input_values(program: Program) -> None:
    again = program.run("rerun", "@last", "-i", "year=1999")

    assert (again.returncode, json.loads(again.stdout)) == (0, "checked 1999")
    assert program.log.read_text() == "read\nread\n"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("rerun", "@last", "--from", "chek"), 2, "no node 'chek' (did you mean 'check'?)"),
        (("rerun", "nope"), 2, "no execution 'nope'"),
        (("rerun", "@last", "-i", "year"), 2, "expected name=value"),
    ],
)
def test_a_wrong_rerun_is_answered_with_a_sentence_and_creates_no_execution(
    program: Program, words: tuple[str, ...], code: int, sentence: str
) -> None:
    refused = program.run(*words)

    assert (refused.returncode, sentence in refused.stderr) == (code, True), refused.stderr
    assert len(program.run("list", "--json").stdout.splitlines()) == 1
