"""Examples of the documentation import only public modules of Runnel."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# docs/reference/python.md names these.
PUBLIC_MODULES = ("runnel", "runnel.errors", "runnel.views", "runnel.testing")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def find_imports(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def is_internal(module: str) -> bool:
    is_public = any(module == name or module.startswith(f"{name}.") for name in PUBLIC_MODULES[1:])
    return module.startswith("runnel.") and not is_public


def find_blocks(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    return re.findall(r"^ *```python\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.name)
def test_no_example_imports_an_internal_module(path: Path) -> None:
    blocks = [path.read_text("utf-8")] if path.suffix == ".py" else find_blocks(path)
    lines = [line for block in blocks for line in block.splitlines()]
    imports = [
        line.strip().removesuffix("(") + "x" * line.endswith("(")
        for line in lines
        if re.match(r"\s*(from|import) runnel\b", line)
    ]

    internal = [line for line in imports if any(map(is_internal, find_imports(line)))]

    assert internal == []


def test_the_reference_names_the_public_modules() -> None:
    page = (ROOT / "docs/reference/python.md").read_text("utf-8")

    assert all(f"`{name}`" in page for name in PUBLIC_MODULES[1:])
