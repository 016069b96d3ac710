"""The table of commands, from which `runnel --help` is printed without importing a command."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
import typer

from runnel.cli.main import COMMANDS, app

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
