"""A user's mistake is answered with a sentence and exit code 2, never with a traceback."""

import json
import os
import shlex
from pathlib import Path

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program
from tests.e2e.wrong_calls import CALLS, GOOD, Call
from tests.e2e.wrong_daily_calls import DAILY_CALLS
from tests.e2e.wrong_trigger_calls import TRIGGER_CALLS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a valid workflow and one completed execution of it."""
    path = tmp_path_factory.mktemp("wrong")
    (path / "good.yaml").write_text(GOOD)
    done = Program(path).run("run", "good.yaml", "--json")
    (path / "id").write_text(json.loads(done.stdout)["execution_id"])
    return path


@pytest.mark.parametrize(
    "call", [*CALLS, *DAILY_CALLS, *TRIGGER_CALLS], ids=lambda call: call.arguments
)
def test_a_wrong_call_is_answered_with_a_sentence(
    call: Call,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    for name, text in call.files.items():
        Path(name).write_bytes(os.fsencode(text))

    code = run_command(shlex.split(call.arguments))

    printed = capsys.readouterr()
    assert printed.err.replace((folder / "id").read_text(), "<id>") == f"error: {call.sentence}\n"
    assert (code, printed.out) == (2, "")
    assert not (folder / "none").exists()


def test_an_unexpected_error_says_that_it_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runnel.cli.commands.validate.load_graph", lambda *_: 1 / 0)

    code = run_command(["validate", "any.yaml"])

    assert code == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: unexpected ZeroDivisionError: division by zero",
        "this is a bug in Runnel: please report it with the output of RUNNEL_DEBUG=1",
    ]


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runnel.cli.commands.validate.load_graph", lambda *_: 1 / 0)
    monkeypatch.setenv("RUNNEL_DEBUG", "1")

    run_command(["validate", "any.yaml"])

    assert "Traceback (most recent call last)" in capsys.readouterr().err
