"""Formats numbers, times, states and tables for a person."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from runnel.core.values import Json

if TYPE_CHECKING:
    from rich.console import Console


MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
RESERVED_LABEL_PREFIX = "runnel."


def format_duration(seconds: float) -> str:
    """Returns a duration such as `0.2 s`, `12 s`, `3m 20s`, `2h 05m` or `4d 3h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:  # noqa: PLR2004  # 9.95 would round to 10.0
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < MINUTE_S:
        return f"{rounded} s"
    if rounded < HOUR_S:
        return f"{rounded // MINUTE_S}m {rounded % MINUTE_S:02}s"
    if rounded < DAY_S:
        return f"{rounded // HOUR_S}h {rounded % HOUR_S // MINUTE_S:02}m"
    return f"{rounded // DAY_S}d {rounded % DAY_S // HOUR_S}h"


def format_local_time(at: float) -> str:
    """Returns date and time in the time zone of the machine."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_clock_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def shorten(text: str, chars_max: int) -> str:
    """Returns the text as one line of at most `chars_max` characters."""
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def to_compact_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def to_pretty_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun, such as `1 node` or `5 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def join_names(names: Sequence[str], names_max: int) -> str:
    """Returns the first names, and the number of names that are left out."""
    listed = ", ".join(names[:names_max])
    return listed if len(names) <= names_max else f"{listed} and {len(names) - names_max:,} more"


def format_labels(labels: Mapping[str, str]) -> str:
    """Returns the labels of the user as text; omits the labels that Runnel adds."""
    return " ".join(
        f"{key}={value}"
        for key, value in labels.items()
        if not key.startswith(RESERVED_LABEL_PREFIX)
    )


class StateStyle(NamedTuple):
    """The glyph and the colour of a state, the same in every command."""

    glyph: str
    style: str


STATE_STYLES: Mapping[str, StateStyle] = {
    "PENDING": StateStyle("·", "dim"),
    "QUEUED": StateStyle("◌", "cyan"),
    "RUNNING": StateStyle("●", "bold blue"),
    "WAITING": StateStyle("◔", "yellow"),
    "COMPLETED": StateStyle("✓", "green"),
    "FAILED": StateStyle("✗", "bold red"),
    "SKIPPED": StateStyle("↷", "dim"),
    "CANCELLED": StateStyle("■", "magenta"),
}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


COLUMN_GAP = "  "


class Cell(NamedTuple):
    text: str
    style: str = ""


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Prints aligned columns: in colour on a terminal, plain in a pipe.

    On a terminal, the last column is cut at the edge. In a pipe, it has its full length.
    """
    table = [[Cell(head, "dim") for head in headers], *rows]
    widths = [max(len(row[i].text) for row in table) for i in range(len(headers))]
    widths[-1] = 0
    if not is_styled():
        for row in table:
            print(
                COLUMN_GAP.join(
                    cell.text.ljust(w) for cell, w in zip(row, widths, strict=True)
                ).rstrip()
            )
        return
    room = shutil.get_terminal_size().columns
    for row in table:
        print_styled(_fit_row(row, widths, room))


def print_styled(cells: Sequence[Cell]) -> None:
    """Prints the cells as one line; omits the styles if stdout is not a terminal."""
    if not is_styled():
        print("".join(cell.text for cell in cells))
        return
    from rich.text import Text

    _get_console().print(
        Text.assemble(*((cell.text, cell.style) for cell in cells)), soft_wrap=True
    )


def is_styled() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


@cache
def _get_console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _fit_row(row: Sequence[Cell], widths: Sequence[int], columns: int) -> list[Cell]:
    used = sum(widths) + len(COLUMN_GAP) * (len(widths) - 1)
    cells = [
        Cell(cell.text.ljust(width) + COLUMN_GAP, cell.style)
        for cell, width in zip(row[:-1], widths[:-1], strict=True)
    ]
    text = row[-1].text
    chars_max = max(10, columns - used)
    return [
        *cells,
        Cell(text if len(text) <= chars_max else text[: chars_max - 1] + "…", row[-1].style),
    ]
