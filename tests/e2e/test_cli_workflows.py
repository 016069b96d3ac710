"""`runnel workflows` lists, prints, compares and deletes stored versions."""

import json
from pathlib import Path

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e


class CommandLine:
    """Runs commands in this process, which saves a process start for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str) -> str:
        code = run_command(arguments)
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Runs commands in a folder with two versions of `report` and one of `chain`."""
    program = Program(tmp_path)
    for year in (2025, 2026):
        nodes = [{"id": "a", "handler": "output", "config": {"year": year, "by": "Ada"}}]
        (tmp_path / "report.json").write_text(json.dumps({"name": "report", "nodes": nodes}))
        assert program.run("run", "report.json").returncode == 0
    assert program.run("run", "chain.json").returncode == 0
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def test_workflows_are_listed_with_their_newest_version_and_size(cli: CommandLine) -> None:
    lines = cli.run("workflows").splitlines()

    assert [line.split() for line in lines] == [
        ["WORKFLOW", "VERSION", "NODES"],
        ["chain", "1", "2"],
        ["report", "2", "1"],
    ]
    assert [json.loads(line)["name"] for line in cli.run("workflows", "--json").splitlines()] == [
        "chain",
        "report",
    ]
    assert cli.run("workflows", "--limit", "1").splitlines()[-1] == (
        "(the first 1; --limit shows more)"
    )


def test_the_versions_of_a_workflow_come_newest_first(cli: CommandLine) -> None:
    lines = cli.run("workflows", "report").splitlines()

    assert [line.split()[:2] for line in lines] == [["VERSION", "NODES"], ["2", "1"], ["1", "1"]]


def test_a_printed_version_runs_as_the_same_version(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "former.yaml").write_text(cli.run("workflows", "report", "--version", "1"))

    assert Program(tmp_path).run("run", "former.yaml").returncode == 0
    versions = cli.run("workflows", "report", "--json").splitlines()
    assert [json.loads(line)["version"] for line in versions] == [2, 1]
    as_json = json.loads(cli.run("workflows", "report", "--version", "1", "--json"))
    assert as_json["document"]["nodes"][0]["config"] == {"year": 2025, "by": "Ada"}


def test_two_versions_are_compared_line_by_line(cli: CommandLine) -> None:
    newest = cli.run("workflows", "report", "--diff", "1").splitlines()
    backward = cli.run("workflows", "report", "--diff", "2", "--version", "1").splitlines()
    same = cli.run("workflows", "report", "--diff", "2")
    as_json = json.loads(cli.run("workflows", "report", "--diff", "1", "--json"))

    assert newest[:2] == ["--- report (version 1)", "+++ report (version 2)"]
    assert [line for line in newest[3:] if line[0] != " "] == [
        "-      year: 2025",
        "+      year: 2026",
    ]
    assert [line for line in backward[3:] if line[0] != " "] == [
        "-      year: 2026",
        "+      year: 2025",
    ]
    assert same == "no difference between versions 2 and 2\n"
    assert (as_json["from"], as_json["to"], as_json["diff"].splitlines()) == (1, 2, newest)


def test_a_workflow_is_deleted_after_a_confirmation(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    unconfirmed = run_command(["workflows", "report", "--delete"])
    stderr = capsys.readouterr().err
    deleted = cli.run("workflows", "report", "--delete", "--yes")

    assert unconfirmed == 2
    assert "workflow 'report' (up to version 2) would be deleted; confirm with --yes" in stderr
    assert deleted == "deleted: 2 versions of 'report'\n"
    assert [line.split()[0] for line in cli.run("workflows").splitlines()] == ["WORKFLOW", "chain"]
    assert "report" in cli.run("show", "@last") + cli.run("list", "--workflow", "report")
