"""docs/reference: generated pages are up to date, and list every name, error and command."""

import pytest
import typer

import runnel
from runnel import errors
from runnel.cli.main import app
from tools.reference.__main__ import FOLDER, PAGES
from tools.reference.commands import build_commands_page
from tools.reference.errors import build_errors_page
from tools.reference.python import GROUPS, OTHER_NAMES

HAND_WRITTEN = {"glossary.md", "handlers.md", "run-when.md", "settings.md", "triggers.md"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    """A failure means that a page is outdated: run `make reference`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_other_page_is_written_by_hand() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES) | HAND_WRITTEN


def test_every_public_name_is_described_once() -> None:
    described = [name for names in GROUPS.values() for name in names]

    assert sorted([*described, *OTHER_NAMES]) == sorted(runnel.__all__)


def test_every_error_is_listed() -> None:
    page = build_errors_page()

    for error in errors.list_error_classes():
        assert f"`{error.__name__}`" in page, error


def test_every_command_is_listed() -> None:
    page = build_commands_page()
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # not of Typer's interface

    for name in commands:
        assert f"### `runnel {name}" in page, name
