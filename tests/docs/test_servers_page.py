"""README and docs/guides/servers.md: commands and options exist, examples load."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from runnel.authoring.registry import load_app
from runnel.cli.main import app
from runnel.ports.telemetry import EXECUTION_FINISHED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVERS = (ROOT / "docs/guides/servers.md").read_text(encoding="utf-8")
# Any: the class of Typer's commands is not part of its interface.
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
GUIDES = README + SERVERS
BLOCKS = "\n".join(re.findall(r"^```bash\n(.*?)^```$", GUIDES, re.DOTALL | re.MULTILINE))
CALLS = [line for line in BLOCKS.splitlines() if line.startswith("runnel ")]


@pytest.mark.parametrize("call", CALLS)
def test_a_command_and_its_options_exist(call: str) -> None:
    _, name, *words = shlex.split(call, comments=True)
    command = COMMANDS[name]
    if hasattr(command, "commands"):  # a group: the command is the next word
        command = command.commands[words[0]]
    known = {option for parameter in command.params for option in parameter.opts}

    assert {word for word in words if word.startswith("--")} <= known


def test_the_handlers_of_the_guide_are_an_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((text, name),) = re.findall(
        r"^```python\n(# (\w+)\.py\n.*?)^```$", SERVERS, re.DOTALL | re.MULTILINE
    )
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    assert load_app(f"{name}:handlers").names() == ["price"]
    assert sys.modules.pop(name).price({"of": 21}, None) == 42


def test_the_log_line_is_json_with_a_known_event() -> None:
    (line,) = re.findall(r"^```json\n(.*?)\n```$", SERVERS, re.DOTALL | re.MULTILINE)

    assert json.loads(line)["event"] == EXECUTION_FINISHED


def test_every_command_is_named_in_the_readme() -> None:
    section = README.partition("## Commands")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))

    assert set(COMMANDS) <= named


def test_the_table_of_commands_on_a_server_is_complete() -> None:
    table = SERVERS.partition("## Commands on a server")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)", table))

    elsewhere = {"orchestrator", "worker", "dev", "doctor", "config", "version"}
    assert set(COMMANDS) - elsewhere <= named
