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


class Lists:
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
        """The labels `n` of what is listed."""
        return [json.loads(line)["labels"]["n"] for line in self(*words, "--json").splitlines()]


@pytest.fixture
def lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lists:
    monkeypatch.chdir(tmp_path)
    found = Lists(tmp_path, capsys)
    for number in range(3):
        found.run("good", "--label", f"n={number}", "--label", f"half={number // 2}")
    found.run("bad", "--label", "n=9", "--label", "half=1")
    return found


@pytest.mark.e2e
def test_executions_are_found_by_label_time_and_text(lists: Lists) -> None:
    assert lists.names("--label", "half=1") == ["9", "2"]
    assert lists.names("--label", "half=1", "--workflow", "good") == ["2"]
    assert lists.names("--search", "NODEFAILED") == ["9"]
    assert lists.names("--since", "1h", "--limit", "2") == ["9", "2"]
    assert lists.names("--until", "1h") == []
    assert "(the newest 2; --limit shows more)" in lists("--limit", "2")
    assert "--limit shows more" not in lists("--limit", "4")


@pytest.mark.e2e
def test_executions_are_counted_by_state(lists: Lists) -> None:
    counts = [json.loads(line) for line in lists("--count", "--json").splitlines()]

    assert [(each["status"], each["count"]) for each in counts if each["count"]] == [
        ("COMPLETED", 3),
        ("FAILED", 1),
    ]
    assert lists("--count", "--label", "half=1").split() == [
        *("STATUS", "EXECUTIONS"),
        *("✓", "COMPLETED", "1"),
        *("✗", "FAILED", "1"),
    ]
    assert lists("--count", "--status", "pending") == "no executions\n"
