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


ORDER_STEPS = """
from pathlib import Path

def note(log, word):
    with open(log, "a") as file:
        file.write(word + "\\n")

def ship(log, gate):
    if not Path(gate).exists():
        raise ValueError("no truck")
    note(log, "ship")
"""


def _make_step(node_id: str, function: str, *parents: str, **fields: object) -> dict[str, object]:
    args = {"log": "{{ input.log }}"}
    args |= {"gate": "{{ input.gate }}"} if function == "ship" else {"word": node_id}
    config = {"function": f"order:{function}", "args": args}
    return {
        "id": node_id,
        "handler": "python",
        "dependencies": parents,
        "retry": {"max_retries": 0},
        "config": config,
        **fields,
    }


ORDER = {
    "name": "order",
    "nodes": [
        _make_step("charge", "note"),
        _make_step("ship", "ship", "charge"),
        _make_step("refund", "note", "charge", "ship", run_when="one_failed"),
    ],
}


@pytest.fixture
def refunded(tmp_path: Path) -> Program:
    """Returns a folder with an order that was charged, not shipped and refunded; a truck came."""
    program = Program(tmp_path)
    (program.folder / "order.py").write_text(ORDER_STEPS)
    (program.folder / "order.json").write_text(json.dumps(ORDER))
    gate = program.folder / "gate"
    failed = program.run("run", "order.json", "-i", f"log={program.log}", "-i", f"gate={gate}")
    assert failed.returncode == 1
    assert "clean-up node refund ran and may have undone charge" in failed.stderr
    assert "run every node again: runnel rerun " in failed.stderr
    assert "--all" in failed.stderr
    assert "run the failed nodes again" not in failed.stderr
    gate.touch()
    return program


def test_a_rerun_warns_if_clean_up_may_have_undone_reused_results(refunded: Program) -> None:
    again = refunded.run("rerun", "@last")

    assert again.returncode == 0
    assert "warning: clean-up node refund ran and may have undone charge" in again.stderr
    assert refunded.log.read_text().split() == ["charge", "refund", "ship"]


def test_a_bulk_rerun_warns_if_clean_up_may_have_undone_reused_results(
    refunded: Program,
) -> None:
    again = refunded.run("rerun", "--status", "FAILED", "--yes")

    assert again.returncode == 0, again.stderr
    assert "warning: clean-up node refund ran and may have undone charge" in again.stderr
    assert "--all runs every node" in again.stderr


def test_a_batch_that_retries_failed_documents_warns_about_clean_up(refunded: Program) -> None:
    document = {"log": str(refunded.log), "gate": str(refunded.folder / "gate")}
    (refunded.folder / "orders.jsonl").write_text(json.dumps(document) + "\n")
    call = ("batch", "order.json", "--inputs", "orders.jsonl")

    first = refunded.run(*call)
    again = refunded.run(*call, "--retry-failed")

    assert "warning" not in first.stderr
    assert (
        "warning: --retry-failed reuses the results of completed nodes, which the clean-up of "
        "refund may have undone; 'runnel rerun --all' runs every node"
    ) in again.stderr


def test_a_retry_of_a_letter_warns_if_clean_up_may_have_undone_reused_results(
    refunded: Program,
) -> None:
    again = refunded.run("dlq", "retry", "--all")

    assert again.returncode == 0, again.stderr
    assert "warning: clean-up node refund ran and may have undone charge" in again.stderr


@pytest.mark.parametrize("words", [["--all"], ["--from", "charge"]])
def test_a_rerun_of_the_undone_node_does_not_warn(refunded: Program, words: list[str]) -> None:
    again = refunded.run("rerun", "@last", *words)

    assert again.returncode == 0
    assert "warning" not in again.stderr
    assert refunded.log.read_text().split() == ["charge", "refund", "charge", "ship"]


def test_a_successful_rerun_leaves_no_dead_letter_to_retry(refunded: Program) -> None:
    before = refunded.run("dlq", "list").stdout

    refunded.run("rerun", "@last", "--all")

    assert "ship" in before
    assert "ship" not in refunded.run("dlq", "list").stdout
    refunded.run("dlq", "retry", "--all")
    assert refunded.log.read_text().split() == ["charge", "refund", "charge", "ship"]
