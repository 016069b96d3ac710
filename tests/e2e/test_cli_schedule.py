"""`runnel schedule`"""

import json
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e


class CommandLine:
    """Commands that look, called in this process: that saves starting one for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def ask(self, *arguments: str) -> list[str]:
        code = run_command(["schedule", *arguments])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out.splitlines()

    def document(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(*arguments, "--json")[0])
        return found


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    Program(tmp_path)
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def test_a_schedule_is_added_with_its_workflow_shown_and_removed(desk: CommandLine) -> None:
    options = ["--timezone", "Europe/Berlin", "--overlap", "skip", "-l", "team=x"]
    added = desk.ask(
        "add", "nightly", "chain.json", "--cron", "30 3 * * *", "-i", "x={{ tick.date }}", *options
    )
    listed = desk.ask("list")
    shown = desk.ask("show", "nightly")
    document = desk.document("show", "nightly")
    coming = desk.ask("next", "nightly", "--count", "3")
    removed = desk.ask("remove", "nightly")
    left = desk.ask("list")

    tick = document["next_ticks"][0]
    assert added == [
        "schedule 'nightly' runs 'chain' at '30 3 * * *' Europe/Berlin",
        f"next: {tick} while 'runnel dev' is running",
    ]
    assert listed[0].split() == ["NAME", "WORKFLOW", "WHEN", "NEXT", "FIRED", "PROBLEM"]
    assert listed[1].split() == [
        *("nightly", "chain", "at", "'30", "3", "*", "*", "*'", "Europe/Berlin", tick, "0")
    ]
    assert [line.strip() for line in shown] == [
        "nightly",
        "workflow  chain",
        "when      at '30 3 * * *' Europe/Berlin",
        "overlap   skip, catch-up 1",
        "labels    team=x",
        f"next      {tick}",
        "ticks     0 fired",
        "",
        "input",
        "{",
        '"x": "{{ tick.date }}"',
        "}",
    ]
    assert (document["input"], document["overlap"]) == ({"x": "{{ tick.date }}"}, "skip")
    assert coming == document["next_ticks"][:3]
    assert all("T03:30:00+0" in each for each in coming)
    assert removed == ["schedule 'nightly' is removed"]
    assert left[0].startswith("no schedules; make one with: runnel schedule add")


def test_a_schedule_is_paused_and_resumed(desk: CommandLine) -> None:
    desk.ask("add", "often", "chain.json", "--every", "1h30m", "--paused")
    paused = desk.ask("list")
    none = desk.ask("next", "often")
    resumed = desk.ask("resume", "often")
    again = desk.ask("pause", "often")
    document = desk.document("resume", "often")

    assert "every 1h 30m" in paused[1]
    assert "is paused" in paused[1]
    assert none == ["none: schedule 'often' is paused"]
    assert resumed[0] == "schedule 'often' is resumed"
    assert again == ["schedule 'often' is paused"]
    assert document["is_paused"] is False
    assert document["interval_s"] == 5_400
    assert len(document["next_ticks"]) == 5


def test_a_second_one_of_the_same_name_is_refused(
    desk: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.ask("add", "often", "chain.json", "--every", "5m")

    code = run_command(["schedule", "add", "often", "chain", "--every", "6m"])

    assert code == 2
    assert capsys.readouterr().err == (
        "error: a schedule 'often' already exists: remove it first, or choose another name\n"
    )
    assert desk.document("show", "often")["interval_s"] == 300
    assert run_command(["schedule"]) == 0
