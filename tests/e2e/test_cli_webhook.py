"""`runnel webhook` adds, shows, replaces and removes webhooks."""

import json
from pathlib import Path

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

PATH = "POST /v1/workflows/chain/triggers/webhook"


class CommandLine:
    """Runs commands in this process, which saves a process start for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, *arguments: str, code: int = 0) -> list[str]:
        exit_code = run_command(["webhook", *arguments])
        printed = self._capsys.readouterr()
        assert exit_code == code, printed.err
        return (printed.out or printed.err).splitlines()


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Runs commands in a folder where the workflow `chain` is stored."""
    assert Program(tmp_path).run("run", "chain.json").returncode == 0
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


def test_a_webhook_is_added_shown_replaced_and_removed(cli: CommandLine) -> None:
    listed_before = cli.run("list")
    added = cli.run("add", "chain", "--kind", "github", "--secret", "hook", "-m", "x={{ body.n }}")
    again = cli.run("add", "chain", "--secret", "hook", code=2)
    replaced = cli.run("add", "chain", "--kind", "none", "--replace", "--label", "team=x")
    cli.run("add", "chain", "--secret", "hook", "--replace", "--delivery-id", "{{ body.id }}")
    listed = cli.run("list")
    shown = cli.run("show", "chain")
    document = json.loads(cli.run("show", "chain", "--json")[0])
    removed = cli.run("remove", "chain")

    assert listed_before[0].startswith("no webhooks; make one with: runnel webhook add")
    assert added == [
        f"workflow 'chain' is started by: {PATH}",
        "set the secret in RUNNEL_SECRET_HOOK where 'runnel api' or 'runnel dev' runs",
    ]
    assert again == [
        "error: a webhook 'chain' already exists: remove it first, or choose another name"
    ]
    assert (
        replaced[1]
        == "the webhook has no secret: anyone who can reach the server can start the workflow"
    )
    assert listed[0].split() == ["WORKFLOW", "KIND", "SECRET", "ADDED", "PATH"]
    assert listed[1].split()[:3] == ["chain", "token", "hook"]
    facts = [line.split(maxsplit=1) for line in shown[1:-1]]
    assert facts == [
        ["path", PATH],
        ["kind", "token, in X-Webhook-Token"],
        ["secret", "hook"],
        ["delivery", "{{ body.id }}"],
    ]
    assert (document["kind"], document["secret"], document["mapping"]) == ("token", "hook", None)
    assert removed == ["the webhook of workflow 'chain' is removed"]
    assert cli.run("list", "--json") == []
    assert any("Usage: runnel webhook" in line for line in cli.run())


def test_without_a_data_directory_there_are_no_webhooks(cli: CommandLine) -> None:
    assert cli.run("list", "--data-dir", "none")[0].startswith("no webhooks")
    assert not Path("none").exists()
