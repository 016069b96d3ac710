"""`runnel dlq` lists, retries and purges dead letters."""

import json
import os
import pty
import sys
from pathlib import Path

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import DEADLINE_S, Program
from tests.fork_server import Streams

pytestmark = pytest.mark.e2e

STEPS = """
def parse(text):
    if text == "bad":
        raise ValueError("it is bad")
    return text.upper()
"""
EDITOR = """\
import pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text().replace("{{ input.text }}", "edited"))
"""
FLOW = {
    "name": "parsing",
    "nodes": [
        {
            "id": "parse",
            "handler": "python",
            "config": {"function": "parsing:parse", "args": {"text": "{{ input.text }}"}},
        },
        {"id": "tell", "handler": "output", "config": {"said": "{{ parse }}"}},
    ],
}


class Letters:
    """A folder with one dead letter, and the commands that inspect it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.program = Program(folder)
        self._capsys = capsys
        (folder / "parsing.py").write_text(STEPS)
        (folder / "editor.py").write_text(EDITOR)
        (folder / "parsing.json").write_text(json.dumps(FLOW))
        failed = self.program.run("run", "parsing.json", "-i", "text=bad", "--json")
        self.execution_id = json.loads(failed.stdout)["execution_id"]
        self.name = f"{self.execution_id}/parse"

    def run_dlq(self, *arguments: str) -> str:
        code = run_command(["dlq", *arguments])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    @property
    def count(self) -> int:
        return int(self.run_dlq("list", "--count"))


@pytest.fixture
def letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Letters:
    letters = Letters(tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    return letters


def test_letters_are_listed_counted_and_shown(letters: Letters) -> None:
    head, row = letters.run_dlq("list").splitlines()
    document = json.loads(letters.run_dlq("show", letters.execution_id[:6], "--json"))
    shown = letters.run_dlq("show", letters.name)
    counts = [letters.run_dlq("list", "--count", *words) for words in ((), ("--queue", "sleep"))]

    assert head.split() == ["NAME", "WORKFLOW", "QUEUE", "REJECTED", "ATTEMPTS", "ERROR"]
    assert row.split()[:3] == [letters.name, "parsing", "python"]
    assert row.endswith("ValueError: it is bad")
    assert document["config"] == FLOW["nodes"][0]["config"]  # type: ignore[index]
    assert (document["attempts"], document["execution_status"]) == (1, "FAILED")
    assert "in parse" in document["traceback"]
    assert "the error is not retryable" in shown
    assert f"runnel dlq retry {letters.name}" in shown
    assert counts == ["1\n", "0\n"]
    assert letters.run_dlq("list", "--queue", "python", "--workflow", "parsing").splitlines()[
        1:
    ] == [row]
    assert letters.run_dlq("list", "--workflow", "another") == "no dead letters\n"
    assert letters.run_dlq("list", "--data-dir", "none") == "no dead letters\n"
    assert json.loads(letters.run_dlq("list", "--count", "--json")) == {"count": 1}


def test_a_letter_that_is_retried_with_a_changed_config_disappears(letters: Letters) -> None:
    done = letters.program.run("dlq", "retry", letters.name, "--config", "args.text=fine")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"said": "FINE"})
    assert done.stderr.startswith(f"retried {letters.name}: execution k")
    assert letters.count == 0


def test_a_letter_is_retried_with_a_config_from_a_file(letters: Letters) -> None:
    config = {"function": "parsing:parse", "args": {"text": "filed"}}
    (letters.program.folder / "config.json").write_text(json.dumps(config))

    done = letters.program.run("dlq", "retry", letters.name, "--payload-file", "config.json")

    assert (done.returncode, json.loads(done.stdout)) == (0, {"said": "FILED"})


def test_a_letter_is_retried_with_a_config_from_the_editor(letters: Letters) -> None:
    untouched = letters.program.run("dlq", "retry", letters.name, "--edit", EDITOR="true")
    broken = letters.program.run("dlq", "retry", letters.name, "--edit", EDITOR="false")
    absent = letters.program.run("dlq", "retry", letters.name, "--edit", EDITOR="no-such-editor")
    editor = f"{sys.executable} editor.py"
    done = letters.program.run("dlq", "retry", letters.name, "--edit", EDITOR=editor)

    assert [command.returncode for command in (untouched, broken, absent)] == [2] * 3
    assert untouched.stderr == (
        "error: --edit: the config did not change and nothing is retried; omit --edit to "
        "retry it unchanged\n"
    )
    assert "the editor 'false' failed, nothing is retried" in broken.stderr
    assert "the editor 'no-such-editor' can't be run: set $EDITOR" in absent.stderr
    assert (done.returncode, json.loads(done.stdout)) == (0, {"said": "EDITED"})


def test_retry_all_begins_with_the_oldest_letter_and_a_new_failure_makes_a_new_letter(
    letters: Letters,
) -> None:
    letters.program.run("run", "parsing.json", "-i", "text=bad")

    done = letters.program.run("dlq", "retry", "--all", "--count", "1")

    assert done.returncode == 1
    assert f"retried {letters.name}: " in done.stderr
    names = [line.split()[0] for line in letters.run_dlq("list").splitlines()[1:]]
    assert len(names) == 2
    assert letters.name not in names
    assert names[0].startswith("k")


def test_letters_are_purged_after_confirmation(letters: Letters) -> None:
    refused = letters.program.run("dlq", "purge", "--all")
    nothing = letters.program.run("dlq", "purge", "--older-than", "1", "--yes")
    no = purge_with_answer(letters.program, "n")
    kept = letters.count
    yes = purge_with_answer(letters.program, "y")

    assert (refused.returncode, refused.stderr) == (
        2,
        "error: 1 dead letter would be removed for good; confirm with --yes\n",
    )
    assert nothing.stdout == "no dead letters\n"
    assert (no, kept, yes) == (130, 1, 0)
    assert letters.count == 0


def purge_with_answer(program: Program, answer: str) -> int:
    """Answers the question of a purge on a terminal; returns the exit code."""
    controller, terminal = pty.openpty()
    streams = Streams(terminal, terminal, terminal)
    process = program.begin("dlq", "purge", "--all", streams=streams)
    os.close(terminal)
    os.write(controller, f"{answer}\n".encode())
    code = process.wait(DEADLINE_S)
    os.close(controller)
    return code
