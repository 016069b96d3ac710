"""docs/guides/python.md names every option; test_pages.py runs its examples."""

from pathlib import Path

from runnel.authoring.decorators.trace import NodeOptions
from runnel.authoring.decorators.workflow import WorkflowOptions

PAGE = (Path(__file__).parents[2] / "docs/guides/python.md").read_text(encoding="utf-8")


def test_every_option_is_named() -> None:
    for name in (*NodeOptions.__annotations__, *WorkflowOptions.__annotations__):
        assert f"`{name}`" in PAGE, name
