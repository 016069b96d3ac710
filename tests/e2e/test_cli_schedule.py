"""`runnel schedule` adds, shows, pauses and removes schedules."""

import json
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e


class CommandLine:
    """Runs commands in this process, which saves a process start for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str) -> list[str]:
        code = run_command(["schedule", *arguments])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out.splitlines()

    def document(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run(*arguments, "--json")[0])
        return document


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    Program(tmp_path)
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def test_a_schedule_is_added_with_its_workflow_shown_and_removed(cli: CommandLine) -> None:
    options = ["--timezone", "Europe/Berlin", "--overlap", "skip", "-l", "team=x"]
    added = cli.run(
        "add", "nightly", "chain.json", "--cron", "30 3 * * *", "-i", "x={{ tick.date }}", *options
    )
    listed = cli.run("list")
    shown = cli.run("show", "nightly")
    document = cli.document("show", "nightly")
    coming = cli.run("next", "nightly", "--count", "3")
    removed = cli.run("remove", "nightly")
    listed_after_removal = cli.run("list")

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
    assert all("T03:30:00+0" in tick for tick in coming)
    assert removed == ["schedule 'nightly' is removed"]
    assert listed_after_removal[0].startswith("no schedules; make one with: runnel schedule add")


def test_a_schedule_is_paused_and_resumed(cli: CommandLine) -> None:
    cli.run("add", "often", "chain.json", "--every", "1h30m", "--paused")
    paused = cli.run("list")
    next_while_paused = cli.run("next", "often")
    resumed = cli.run("resume", "often")
    again = cli.run("pause", "often")
    document = cli.document("resume", "often")

    assert "every 1h 30m" in paused[1]
    assert "is paused" in paused[1]
    assert next_while_paused == ["none: schedule 'often' is paused"]
    assert resumed[0] == "schedule 'often' is resumed"
    assert again == ["schedule 'often' is paused"]
    assert document["is_paused"] is False
    assert document["interval_s"] == 5_400
    assert len(document["next_ticks"]) == 5


def test_a_second_schedule_of_the_same_name_is_refused(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run("add", "often", "chain.json", "--every", "5m")

    code = run_command(["schedule", "add", "often", "chain", "--every", "6m"])

    assert code == 2
    assert capsys.readouterr().err == (
        "error: a schedule 'often' already exists: remove it first, or choose another name\n"
    )
    assert cli.document("show", "often")["interval_s"] == 300
    assert run_command(["schedule"]) == 0
