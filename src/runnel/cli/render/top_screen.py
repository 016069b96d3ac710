"""Builds the screen of `runnel top`: each section gets a share of the terminal's lines."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from runnel.cli.render.overview import Overview, OverviewSection, build_headline, build_sections
from runnel.cli.render.text import COLUMN_GAP, Cell

ROWS_MIN = 3
# The lines of a section besides its rows: an empty line, the title and the column headers.
SECTION_OVERHEAD_LINES = 3


def build_screen(overview: Overview, *, height: int, problem: str = "") -> Text:
    lines = [_build_line(build_headline(overview))]
    if problem:
        lines.append(Text(problem, style="bold red"))
    sections = build_sections(overview)
    shares = allocate_rows([len(section.rows) for section in sections], height - len(lines))
    for section, rows in zip(sections, shares, strict=True):
        lines += _build_section(section, rows)
    text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines[: max(1, height)])
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def allocate_rows(row_counts: Sequence[int], lines: int) -> list[int]:
    """Returns the number of rows for each section.

    Each section gets up to 3 rows; the free rows are shared among sections that have more.
    """
    free = lines - SECTION_OVERHEAD_LINES * len(row_counts)
    shares = [min(count, ROWS_MIN) for count in row_counts]
    free -= sum(shares)
    while free > 0:
        cut_off = [index for index, count in enumerate(row_counts) if shares[index] < count]
        if not cut_off:
            break
        for index in cut_off[:free]:
            shares[index] += 1
        free -= len(cut_off[:free])
    return shares


def _build_section(section: OverviewSection, rows: int) -> Iterator[Text]:
    yield Text("")
    hidden = len(section.rows) - rows
    more = f"  ({hidden:,} more)" if hidden > 0 else ""
    yield Text.assemble((section.title, "bold"), (more, "dim"))
    if not section.rows:
        yield Text(f"  {section.empty_text}", style="dim")
        return
    table = [[Cell(head, "dim") for head in section.headers], *section.rows[:rows]]
    widths = [max(len(row[at].text) for row in table) for at in range(len(section.headers))]
    for row in table:
        cells = [
            Cell(cell.text.ljust(w) + COLUMN_GAP, cell.style)
            for cell, w in zip(row, widths, strict=True)
        ]
        yield _build_line(cells)


def _build_line(cells: Sequence[Cell]) -> Text:
    return Text.assemble(*((cell.text, cell.style) for cell in cells))
