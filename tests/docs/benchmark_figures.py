"""The figures of the last benchmark, for tables of README.md and of the page on performance."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_MEASURED = "\N{EN DASH}"
# The relative difference of a figure that a table shows with fewer digits.
ROUNDING = 0.005


def read_medians() -> dict[str, str]:
    """Returns the medians of bench/results.md by job and figure."""
    text = (ROOT / "bench/results.md").read_text(encoding="utf-8")
    section = text.partition("## Figures")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    return {f"{job}: {figure}": median for job, figure, median in rows}


def check_cells(cells: list[str], figures: list[str]) -> None:
    """Checks that each cell shows the median of its figure, or that it was not measured."""
    medians = read_medians()
    measured = [medians.get(figure, NOT_MEASURED) for figure in figures]

    assert [is_same(*pair) for pair in zip(cells, measured, strict=True)] == [True] * len(cells), (
        f"expected {measured}"
    )


def is_same(cell: str, median: str) -> bool:
    if NOT_MEASURED in {cell.strip(), median}:
        return cell.strip() == median
    shown, measured = (float(text.replace(",", "")) for text in (cell, median))
    return shown == pytest.approx(measured, rel=ROUNDING)
