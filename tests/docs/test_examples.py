"""Every example prints what its head shows."""

import ast
import itertools
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from tests.docs.console import commands_of, console
from tests.docs.page_commands import PageCommands

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
# demo.yaml runs the steps of demo_steps.py.
NAMES = sorted(
    path.name
    for path in FOLDER.iterdir()
    if path.suffix in {".py", ".yaml"} and path.name != "demo_steps.py"
)
LEAST = 12


def head_of(name: str) -> str:
    """Returns the comment or docstring at the top of an example."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in head)


def session_of(name: str) -> str:
    """Returns the end of the head, from its first command."""
    lines = head_of(name).splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("$ "))
    return textwrap.dedent("\n".join(lines[first:])) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_its_head_shows(
    name: str, tmp_path: Path, program_forks: PageCommands
) -> None:
    shutil.copytree(FOLDER, tmp_path / "examples")
    commands = commands_of(session_of(name))

    with console(tmp_path, program_forks) as terminal:
        for command in commands:
            terminal.follow(command)

    assert any(command.printed.strip() for command in commands), "it shows nothing"


def test_every_example_is_in_the_table() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[`([\w.]+)`\]\(([\w.]+)\) \|", table, re.MULTILINE)

    assert len(NAMES) >= LEAST
    assert {name for name, _ in named} == set(NAMES)
    assert all(name == target for name, target in named)
