"""docs/guides/workflows.md lists every handler, filter and operation."""

import re
from pathlib import Path

from runnel.core.templates.filters import FILTERS
from runnel.core.validation.handler_settings import HANDLER_SETTINGS, OPERATION_SETTINGS

PAGE = (Path(__file__).parents[2] / "docs/guides/workflows.md").read_text(encoding="utf-8")


def test_every_handler_and_its_settings_are_listed() -> None:
    table = PAGE.partition("## Handlers\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", table, re.MULTILINE)
    rows = {name: cell for names, cell in listed for name in re.findall(r"\w+", names)}

    assert set(rows) == set(HANDLER_SETTINGS)
    own = set().union(*OPERATION_SETTINGS.values())
    for handler, settings in HANDLER_SETTINGS.items():
        if "handlers.md#" in rows[handler]:
            continue  # test_handlers_page.py checks that page
        for name in set(settings or ()) - own:
            assert f"`{name}`" in rows[handler], f"{handler}: {name}"


def test_every_filter_is_listed() -> None:
    for name in FILTERS:
        if name not in ("d", "count"):
            assert f"`{name}`" in PAGE, name


def test_every_operation_is_listed() -> None:
    for name in OPERATION_SETTINGS:
        assert f"`{name}`" in PAGE, name
