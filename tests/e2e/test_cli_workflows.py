"""`runnel workflows` lists, prints, compares and deletes stored versions."""

import json
import subprocess
import sys
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


def test_an_activated_version_is_shown_and_can_be_rolled_back(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    activated = cli.run("workflows", "activate", "report", "1")
    versions = cli.run("workflows", "report").splitlines()
    listed = cli.run("workflows").splitlines()
    as_json = json.loads(cli.run("workflows", "activate", "report", "2", "--json"))
    run_command(["workflows", "activate", "report", "newest"])
    newest = capsys.readouterr()

    assert activated == "report: version 1 runs by name\n"
    assert [line.split()[-1] for line in versions] == ["ACTIVE", versions[1].split()[2], "active"]
    assert [line.split()[3:] for line in listed] == [["ACTIVE"], [], ["1"]]
    assert [item["version"] for item in as_json["activations"]] == [2, 1]
    assert newest.out == "report: version 2 runs by name (the newest, also in future)\n"
    assert newest.err == "roll back with: runnel workflows activate report 2\n"
    assert "ACTIVE" not in cli.run("workflows")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["activate", "report", "9"], "version 9 of workflow 'report'"),
        (["activate", "reprot", "1"], "did you mean 'report'"),
        (["activate", "report"], "'runnel workflows activate NAME VERSION'"),
        (["activate", "report", "1", "2"], "'runnel workflows activate NAME VERSION'"),
        (["report", "activate", "1"], "'runnel workflows activate NAME VERSION'"),
        (["activate", "report", "one"], "expected a version number or 'newest', got 'one'"),
        (["activate", "report", "0"], "expected a version number"),
        (["activate", "report", "1", "--delete"], "no other option"),
    ],
)
def test_a_wrong_activation_is_refused(
    cli: CommandLine, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    code = run_command(["workflows", *words])

    assert code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert "ACTIVE" not in cli.run("workflows")


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


def test_a_file_is_stored_without_running_and_runs_by_name(
    cli: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{"id": "a", "handler": "output", "config": {"year": "{{ input.year }}"}}]
    (tmp_path / "next.json").write_text(json.dumps({"name": "report", "nodes": nodes}))

    stored = cli.run("workflows", "store", "next.json")
    executions = cli.run("list", "--count")
    newest = Program(tmp_path).run("run", "report", "--input", "year=7").stdout
    cli.run("workflows", "activate", "report", "1")
    active = Program(tmp_path).run("run", "report").stdout

    assert stored == "stored: version 3 of 'report'\n"
    assert executions.split()[-1] == "3"  # those of the fixture
    assert (json.loads(newest), json.loads(active)["year"]) == ({"year": 7}, 2025)
    assert [json.loads(line)["version"] for line in cli.run("list", "--json").splitlines()][:2] == [
        1,
        3,
    ]
    assert run_command(["run", "reprot"]) == 2
    assert "there is no such file, and no stored workflow" in capsys.readouterr().err


def test_a_stored_workflow_runs_beside_a_folder_of_its_name(
    cli: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report").mkdir()

    assert Program(tmp_path).run("run", "report").returncode == 0
    assert run_command(["run", "./report"]) == 2
    assert "report" in capsys.readouterr().err


def test_a_path_never_runs_the_stored_workflow_of_its_name(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", "./report"]) == 2
    assert "there is no such file; check the path" in capsys.readouterr().err


def test_a_held_execution_starts_when_it_is_triggered(cli: CommandLine, tmp_path: Path) -> None:
    nodes = [{"id": "a", "handler": "output", "config": {"year": "{{ input.year }}"}}]
    (tmp_path / "held.json").write_text(json.dumps({"name": "held", "nodes": nodes}))

    execution_id = cli.run("run", "held.json", "--hold").strip()
    before = json.loads(cli.run("show", execution_id, "--json"))["status"]
    triggered = cli.run("trigger", execution_id, "--input", "year=7")
    resumed = Program(tmp_path).run("resume", execution_id).stdout

    assert before == "PENDING"
    assert triggered.startswith(f"triggered: {execution_id}\n")
    assert json.loads(resumed) == {"year": 7}
    assert run_command(["trigger", execution_id]) == 2


def test_a_held_execution_keeps_its_input_and_labels(
    cli: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "object", "properties": {"year": {"type": "integer"}}}
    nodes = [{"id": "a", "handler": "output", "config": {"year": "{{ input.year }}"}}]
    document = {"name": "held", "input": schema, "nodes": nodes}
    (tmp_path / "held.json").write_text(json.dumps(document))

    execution_id = cli.run(
        "run", "held.json", "--hold", "--input", "year=7", "--label", "team=red"
    ).strip()
    refused = run_command(["run", "held.json", "--hold", "--input", 'year="seven"'])
    problem = capsys.readouterr().err
    cli.run("trigger", execution_id)
    resumed = Program(tmp_path).run("resume", execution_id).stdout

    assert (refused, "input.year: expected a whole number" in problem) == (2, True)
    assert json.loads(resumed) == {"year": 7}
    assert json.loads(cli.run("show", execution_id, "--json"))["labels"]["team"] == "red"


def test_an_execution_of_a_workflow_executor_is_not_rerun(
    cli: CommandLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steps.py").write_text(
        "import runnel\n"
        "def fail(inputs):\n    raise ValueError('broken')\n"
        "dag = runnel.WorkflowDAG('steps')\n"
        "dag.add_step('fail', fail, retry=runnel.RetryPolicy(max_retries=0))\n"
        "print(runnel.WorkflowExecutor(data_dir='.runnel').execute_sync(dag))\n"
    )
    ran = subprocess.run(
        [sys.executable, "steps.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "FAILED" in ran.stdout + ran.stderr

    code = run_command(["rerun", "@last"])

    assert code == 2
    assert "its step 'fail' is a function of the program" in capsys.readouterr().err
