"""docs/reference/settings.md lists every setting with its default, and the code reads each."""

import re
from pathlib import Path

import pytest

from runnel.settings import SourcedSettings, list_settings, read_sourced_settings
from runnel.settings.model import ENVIRONMENTS
from runnel.settings.variables import VARIABLES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
SOURCE = "".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "src/runnel").rglob("*.py")
    if "settings" not in path.parts
)


def rows(section: str) -> list[list[str]]:
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in cells] for cells in lines]


def test_exactly_the_settings_are_listed_with_their_defaults() -> None:
    listed = {cells[0].strip("`"): cells[1] for cells in rows("Every setting")}

    assert listed == {
        line.variable: line.value for line in list_settings(read_sourced_settings({}))
    }


@pytest.mark.parametrize("variable", VARIABLES)
def test_every_setting_is_read(variable: str) -> None:
    field = VARIABLES[variable].field.partition(".")[0]

    assert re.search(rf"\bsettings\.{field}\b", SOURCE), f"{variable} is read by nothing"


def test_the_differences_between_environments_are_listed() -> None:
    names = ["dev", "test", "prod"]
    values = {
        name: {line.variable: line.value for line in list_settings(_of(name))} for name in names
    }
    listed = {cells[0].strip("`"): cells[1:] for cells in rows("The environment")}

    by_field = {variable.field: name for name, variable in VARIABLES.items()}
    differing = {by_field[field] for defaults in ENVIRONMENTS.values() for field in defaults}
    assert {name for name in listed if name in VARIABLES} == differing
    for variable in differing:
        assert listed[variable] == [values[name][variable] for name in names]


def test_pages_quote_defaults_as_they_are() -> None:
    defaults = {line.variable: line.value for line in list_settings(read_sourced_settings({}))}
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    quoted = [
        pair
        for page in pages
        for pair in re.findall(r"`([A-Z]+_[A-Z_]+)` \((\d[\d.]*)(?: s)?\)", page.read_text("utf-8"))
    ]

    assert quoted
    assert [pair for pair in quoted if defaults[pair[0]] != pair[1]] == []


def _of(environment: str) -> SourcedSettings:
    return read_sourced_settings({"RUNNEL_ENV": environment})
