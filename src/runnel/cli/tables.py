"""Columns that line up: in colour and cropped on a terminal, plain and whole in a pipe."""

import shutil
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

GAP = "  "


class Cell(NamedTuple):
    text: str
    style: str = ""


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """The last column is as long as it needs to be; on a terminal it is cut at the edge."""
    table = [[Cell(head, "dim") for head in heads], *rows]
    widths = [max(len(row[i].text) for row in table) for i in range(len(heads))]
    widths[-1] = 0
    if not is_styled():
        for row in table:
            print(
                GAP.join(cell.text.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            )
        return
    room = shutil.get_terminal_size().columns
    for row in table:
        print_styled(_fit(row, widths, room))


def print_styled(cells: Sequence[Cell]) -> None:
    """One line of pieces; without styles when stdout is no terminal."""
    if not is_styled():
        print("".join(cell.text for cell in cells))
        return
    from rich.text import Text

    _console().print(Text.assemble(*((cell.text, cell.style) for cell in cells)), soft_wrap=True)


def is_styled() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


@cache
def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _fit(row: Sequence[Cell], widths: Sequence[int], room: int) -> list[Cell]:
    used = sum(widths) + len(GAP) * (len(widths) - 1)
    cells = [
        Cell(cell.text.ljust(width) + GAP, cell.style)
        for cell, width in zip(row[:-1], widths[:-1], strict=True)
    ]
    last = row[-1].text
    most = max(10, room - used)
    return [*cells, Cell(last if len(last) <= most else last[: most - 1] + "…", row[-1].style)]
