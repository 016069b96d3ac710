"""docs/guides/dead-letters.md: every command runs on a store with a dead letter."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.docs.page_commands import PageCommands
from tests.e2e.program import clean_environment

PAGE = Path(__file__).parents[2] / "docs/guides/dead-letters.md"
BLOCKS = re.findall(
    r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)
CALLS = [line for block in BLOCKS for line in block.splitlines()]
NAME = "01m7hj/parse"
FLOW = """
from runnel import task, workflow

@task
def parse(year):
    return int(year)

@workflow
def years(year: str):
    return parse(year)
"""
# A program for $EDITOR that corrects the config.
EDITOR = """#!/bin/sh
sed -i 's/{{ input.year }}/2026/' "$1"
"""
FAILS_AGAIN = {"dlq retry 01m7hj/parse", "dlq retry --all --queue python --count 10"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, program_forks: PageCommands) -> Path:
    """Returns a folder with one dead letter."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "years.py").write_text(FLOW)
    (folder / "editor").write_text(EDITOR)
    (folder / "editor").chmod(0o755)
    program_forks.run(["run", "years.py", "--input", "year=MMXXVI"], folder)
    return folder


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_page_is_made(
    call: str, prepared: Path, tmp_path: Path, program_forks: PageCommands
) -> None:
    folder = tmp_path / "letters"
    shutil.copytree(prepared, folder)
    environment = clean_environment(EDITOR=str(folder / "editor"))
    (letter,) = program_forks.run(["dlq", "list", "--json"], folder).out.splitlines()
    name = json.loads(letter)["name"]
    program, *words = shlex.split(call, comments=True)

    done = program_forks.run([word.replace(NAME, name) for word in words], folder, environment)

    assert program == "runnel"
    assert done.code == (1 if " ".join(words) in FAILS_AGAIN else 0), done.err
    assert "error: " not in done.err
