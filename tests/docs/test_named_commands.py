"""Every command and option that a page names in its text exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from runnel.cli.main import app

ROOT = Path(__file__).parents[2]
# Any: the class of Typer's commands is not part of its interface.
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
GLOBAL_OPTIONS = {"--help", "--version", "--install-completion"}
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for folder in ("docs/guides", "docs/reference", "docs/explanation")
        for path in (ROOT / folder).glob("*.md")
    ),
]


def find_calls(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return sorted(set(re.findall(r"`runnel ([a-z][^`]*)`", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_names_only_commands_and_options_that_exist(page: Path) -> None:
    for call in find_calls(page):
        name, *words = shlex.split(call.replace("\\|", "|"))
        assert name in COMMANDS, call
        command = COMMANDS[name]
        if hasattr(command, "commands") and words:
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known | GLOBAL_OPTIONS, call
