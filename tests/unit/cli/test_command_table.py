"""The table of commands, from which `runnel --help` is printed without importing a command."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from runnel.cli.main import COMMANDS, app, run_command

DEADLINE_S = 60


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_paragraph_of_the_commands_own_help(name: str) -> None:
    # Any: the classes of Typer's commands are not part of its interface.
    root: Any = typer.main.get_command(app)

    paragraph = inspect.cleandoc(root.commands[name].help).split("\n\n")[0]

    assert COMMANDS[name].summary == " ".join(paragraph.split())


def test_the_help_imports_no_command() -> None:
    script = (
        "import sys; from runnel.cli.main import run_command; code = run_command(['--help'])\n"
        "commands = [name for name in sys.modules if name.startswith('runnel.cli.commands')]\n"
        "sys.exit(f'imported: {commands}' if commands else code)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "resume" in done.stdout


def test_the_help_lists_dev_with_the_commands_that_serve_and_needs_no_server_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`dev` needs no server, so its group must not be called "Run them on servers"."""
    assert run_command(["--help"]) == 0
    shown = capsys.readouterr().out

    titles = re.findall(r"─ (.+?) ─", shown)
    assert titles == ["Options", "Run", "Write", "Operate", "Serve"]
    assert re.search(r"│ dev +Run orchestrator", shown.partition("─ Serve ─")[2])


def iterate_commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.commands[name]
        yield f"{path} {name}", command
        if hasattr(command, "list_commands"):
            yield from iterate_commands(command, f"{path} {name}")


def test_no_help_has_backticks_which_a_terminal_does_not_render() -> None:
    root: Any = typer.main.get_command(app)

    texts = {
        f"{path} {parameter.name}": str(getattr(parameter, "help", "") or "")
        for path, command in iterate_commands(root, "runnel")
        for parameter in command.params
    } | {path: str(command.help) for path, command in iterate_commands(root, "runnel")}

    assert [path for path, text in texts.items() if "`" in text] == []
