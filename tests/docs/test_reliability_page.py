"""docs/explanation/reliability.md: the tests that it names exist."""

import re
from pathlib import Path

import pytest

from simulation.checks import ALL_CHECKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?|tests/\w+(?=`)", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")

    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")


def test_every_check_of_the_simulation_is_a_promise() -> None:
    promises = re.findall(r"^\d+\. \*\*", PAGE, re.MULTILINE)

    assert len(promises) == len(ALL_CHECKS)


def test_every_row_of_the_failure_matrix_says_how_it_is_shown() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == 6]
    shown = [row.split("|")[5] for row in rows]

    assert len(shown) > 15
    assert all(
        "tests/" in cell or "not shown by a test" in cell
        for cell in shown[2:]
        if cell.strip() != "shown by"
    )
