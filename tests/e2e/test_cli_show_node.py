"""`runnel show ID --node NODE` shows one node in detail."""

import json
from pathlib import Path

import pytest

from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e

STEPS = """
from runnel import Context

def shout(n, ctx: Context):
    ctx.logger.info("at %s", n)
    if n == 3:
        raise ValueError("no three")
    return n * 2
"""
FLOW = {
    "name": "shouting",
    "nodes": [
        {"id": "list", "handler": "input", "config": {"all": [1, 2, 3]}},
        {
            "id": "one",
            "handler": "python",
            "config": {"function": "shouts:shout", "args": {"n": "{{ list.all[0] }}"}},
        },
        {
            "id": "each",
            "handler": "python",
            "for_each": "list.all",
            "dependencies": ["one"],
            "config": {"function": "shouts:shout", "args": {"n": "{{ item }}"}},
        },
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shouts.py").write_text(STEPS)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    assert Program(tmp_path).run("run", "flow.json").returncode == 1
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_node_is_shown_with_its_attempts_config_and_log_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = [
        run_command(["show", "@last", "--node", "one"]),
        run_command(["show", "@last", "--node", "each"]),
        run_command(["show", "@last", "--node", "each", "--item", "2"]),
    ]
    shown = capsys.readouterr().out
    run_command(["show", "@last", "--node", "one", "--json"])
    document = json.loads(capsys.readouterr().out)

    by_name = run_command(["show", "@last", "--node", "each[2]"]), capsys.readouterr().out

    assert codes == [0, 0, 0]
    assert by_name[0] == 0
    assert "✗ each[2]" in by_name[1]
    for text in (
        "✓ one (python)",
        "info    at 1",
        '"n": 1',
        "3 of 3 items settled",
        "✗ each[2]",
    ):
        assert text in shown
    assert "ValueError: no three" in shown
    assert "in shout" in shown
    assert (document["status"], document["output"]) == ("COMPLETED", 2)
    assert document["config"]["args"] == {"n": 1}
    assert document["attempts"][0]["logs"][0]["text"] == "at 1"


def test_an_unknown_node_is_named_in_the_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command(["show", "@last", "--node", "eech"])

    assert code == 2
    assert "no node 'eech'; did you mean 'each'?" in capsys.readouterr().err


def test_a_failed_map_shows_its_items_with_their_attempts_and_no_false_count(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(["show", "@last"])
    whole = capsys.readouterr().out
    run_command(["show", "@last", "--node", "each"])
    lines = capsys.readouterr().out.splitlines()
    run_command(["show", "@last", "--node", "each", "--json"])
    document = json.loads(capsys.readouterr().out)

    (row,) = [line for line in whole.splitlines() if line.startswith("✗ each")]
    items = {item["item"]: item for item in document["items"]["items"]}
    # Cancelled items count as settled, so "3/3 items" would read as if the map had completed.
    assert "items" not in row
    assert row.split()[2] == "FAILED"
    assert "ValueError: each[2]: no three" in row
    assert document["items"]["count"] == 3
    assert items[2]["attempts"] == max(item["attempts"] for item in items.values())
    (failed,) = [line.split() for line in lines if line.startswith("2 ")]
    assert failed[:4] == ["2", "✗", "FAILED", str(items[2]["attempts"])]
