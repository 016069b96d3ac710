"""`runnel list` finds and counts executions by state, label, time and text."""

import json
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.main import run_command

FLOWS: dict[str, dict[str, Any]] = {
    "good": {"nodes": [{"id": "a", "handler": "input"}]},
    "bad": {
        "nodes": [{"id": "a", "handler": "python", "config": {"function": "builtins:open"}}],
    },
}


class ListCommand:
    """Calls `runnel list` in this process, on a data directory in `folder`."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def run(self, name: str, *words: str) -> None:
        (self._folder / f"{name}.json").write_text(json.dumps({"name": name, **FLOWS[name]}))
        run_command(["run", f"{name}.json", *words])
        self._capsys.readouterr()

    def __call__(self, *words: str) -> str:
        code = run_command(["list", *words])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    def names(self, *words: str) -> list[str]:
        """Returns the label `n` of each listed execution."""
        return [json.loads(line)["labels"]["n"] for line in self(*words, "--json").splitlines()]


@pytest.fixture
def list_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> ListCommand:
    monkeypatch.chdir(tmp_path)
    command = ListCommand(tmp_path, capsys)
    for number in range(3):
        command.run("good", "--label", f"n={number}", "--label", f"half={number // 2}")
    command.run("bad", "--label", "n=9", "--label", "half=1")
    return command


@pytest.mark.e2e
def test_executions_are_found_by_label_time_and_text(list_command: ListCommand) -> None:
    assert list_command.names("--label", "half=1") == ["9", "2"]
    assert list_command.names("--label", "half=1", "--workflow", "good") == ["2"]
    assert list_command.names("--search", "NODEFAILED") == ["9"]
    assert list_command.names("--since", "1h", "--limit", "2") == ["9", "2"]
    assert list_command.names("--until", "1h") == []
    assert "(the newest 2; --limit shows more)" in list_command("--limit", "2")
    assert "--limit shows more" not in list_command("--limit", "4")


@pytest.mark.e2e
def test_executions_are_counted_by_state(list_command: ListCommand) -> None:
    counts = [json.loads(line) for line in list_command("--count", "--json").splitlines()]

    assert [(row["status"], row["count"]) for row in counts if row["count"]] == [
        ("COMPLETED", 3),
        ("FAILED", 1),
    ]
    assert list_command("--count", "--label", "half=1").split() == [
        *("STATUS", "EXECUTIONS"),
        *("✓", "COMPLETED", "1"),
        *("✗", "FAILED", "1"),
    ]
    assert list_command("--count", "--status", "pending") == "no executions\n"
