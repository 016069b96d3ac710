"""`runnel cancel` and `runnel rerun` for many executions at once."""

import asyncio
import json
from pathlib import Path

import pytest

from runnel.app.wiring import build_engine
from runnel.cli.main import run_command
from runnel.settings.model import Settings
from tests.core_driver import make_node, make_workflow
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

WAITING = make_workflow(make_node("w", handler="wait_for_signal", config={"signal": "go"}))
FLOW = {
    "name": "reading",
    "nodes": [
        {"id": "size", "handler": "python", "config": {"function": "sizes:size"}, "retry": 0},
    ],
}
SIZES = """
from pathlib import Path

def size():
    return len(Path("file.txt").read_text())
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    (tmp_path / "sizes.py").write_text(SIZES)
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path)


def test_all_failed_executions_are_rerun_together(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        assert program.run("run", "flow.json", "--label", f"n={number}").returncode == 1
    (tmp_path / "file.txt").write_text("12345")

    unconfirmed = run_command(["rerun", "--workflow", "reading"])
    stderr = capsys.readouterr().err
    done = program.run("rerun", "--workflow", "reading", "--status", "failed", "--yes")
    again = program.run("rerun", "--workflow", "reading", "--yes")

    assert unconfirmed == 2
    assert "2 executions would be rerun; confirm with --yes" in stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5", "5"]
    assert "skipped: 2 executions that were already rerun in this way" in again.stderr
    counts = [row["count"] for row in program.documents("list", "--count") if row["count"]]
    assert counts == [2, 2]


async def leave_waiting(folder: Path) -> None:
    """Submits an execution from an engine that closes before it runs anything."""
    engine = await build_engine(Settings(data_dir=folder / ".runnel"))
    try:
        await engine.claim_home_partition()
        await engine.client.submit(WAITING)
    finally:
        await engine.backend.close()


def test_waiting_executions_are_cancelled_together_even_if_no_process_runs_them(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        asyncio.run(leave_waiting(tmp_path))

    unconfirmed = run_command(["cancel", "--workflow", "test"])
    stderr = capsys.readouterr().err
    code = run_command(["cancel", "--workflow", "test", "--reason", "no more", "--yes"])
    printed = capsys.readouterr().out

    assert (unconfirmed, code) == (2, 0)
    assert "2 executions would be cancelled; confirm with --yes" in stderr
    assert printed == "asked 2 executions to end\n"
    executions = program.documents("list")
    assert [(execution["status"], execution["error"]) for execution in executions] == [
        ("CANCELLED", "Cancelled: no more")
    ] * 2
    assert run_command(["cancel", "--workflow", "test", "--yes"]) == 0
    assert capsys.readouterr().out == "no executions to cancel\n"
