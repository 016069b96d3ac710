"""What docs/python.md shows is what happens: its files are written, its commands are run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.authoring.tracing.options import NodeOptions
from runnel.authoring.tracing.workflows import WorkflowOptions
from tests.e2e.program import clean_environment

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```python\n(# (\w+\.py)\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
CONSOLE = "\n".join(re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
COMMANDS = re.findall(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", CONSOLE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("line", "printed"), COMMANDS)
def test_a_command_prints_what_the_page_shows(line: str, printed: str, tmp_path: Path) -> None:
    for text, name in FILES:
        (tmp_path / name).write_text(text)
    program, *words = shlex.split(line)
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "runnel"]

    done = subprocess.run(
        [*start, *words],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    shown = done.stdout if done.returncode == 0 else done.stderr
    assert shown.strip() == printed.strip()


def test_every_option_is_named() -> None:
    for name in (*NodeOptions.__annotations__, *WorkflowOptions.__annotations__):
        assert f"`{name}`" in PAGE, name
