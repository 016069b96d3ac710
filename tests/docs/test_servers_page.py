"""Commands and options that the guides name are those that there are."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from runnel.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVERS = (ROOT / "docs/servers.md").read_text(encoding="utf-8")
BATCHES = (ROOT / "docs/batches.md").read_text(encoding="utf-8")
LETTERS = (ROOT / "docs/dead-letters.md").read_text(encoding="utf-8")
# Any: the class of Typer's commands is not part of its interface.
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
GUIDES = README + SERVERS + BATCHES + LETTERS
BLOCKS = "\n".join(re.findall(r"^```bash\n(.*?)^```$", GUIDES, re.DOTALL | re.MULTILINE))
CALLS = [line for line in BLOCKS.splitlines() if line.startswith("runnel ")]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_a_guide_can_be_made(call: str) -> None:
    _, name, *words = shlex.split(call, comments=True)
    command = COMMANDS[name]
    if hasattr(command, "commands"):  # a group: the command is the next word
        command = command.commands[words[0]]
    known = {option for each in command.params for option in each.opts}

    assert {word for word in words if word.startswith("--")} <= known


def test_every_command_is_named_in_the_readme() -> None:
    section = README.partition("## Commands")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))

    assert set(COMMANDS) - {"version"} <= named


def test_every_command_is_told_what_it_does_on_a_server() -> None:
    table = SERVERS.partition("## Where the command line works")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)", table))

    elsewhere = {"orchestrator", "worker", "dev", "doctor", "config", "version"}
    assert set(COMMANDS) - elsewhere <= named
