"""docs/reference is what the code is now; every error and every command is in it."""

import pytest
import typer

from runnel import errors
from runnel.cli.main import app
from tools.reference.__main__ import FOLDER, PAGES
from tools.reference.commands import commands_page
from tools.reference.errors import errors_page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    """Write it anew: `make reference`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name]()


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_error_is_listed() -> None:
    page = errors_page()

    for error in errors.list_error_classes():
        assert f"`{error.__name__}`" in page, error


def test_every_command_is_listed() -> None:
    page = commands_page()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # not of Typer's interface

    for name in commands:
        assert f"### `runnel {name}" in page, name
