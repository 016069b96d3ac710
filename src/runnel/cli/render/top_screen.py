"""An overview that fills a terminal: each section gets its share of the lines."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from runnel.cli.commands.top import Overview, Section, headline, sections
from runnel.cli.render.text import GAP, Cell
from runnel.settings.model import Settings

ROWS_LEAST = 3
# Title, heads, and the empty line above.
LINES_AROUND = 3


def screen(seen: Overview, settings: Settings, *, height: int, trouble: str = "") -> Text:
    lines = [_line(headline(seen))]
    if trouble:
        lines.append(Text(trouble, style="bold red"))
    found = sections(seen, settings)
    shares = share_out([len(section.rows) for section in found], height - len(lines))
    for section, rows in zip(found, shares, strict=True):
        lines += _section(section, rows)
    text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines[: max(1, height)])
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def share_out(wanted: Sequence[int], lines: int) -> list[int]:
    """How many rows each section may have: a few at least, and the rest in turn to who has more."""
    left = lines - LINES_AROUND * len(wanted)
    shares = [min(number, ROWS_LEAST) for number in wanted]
    left -= sum(shares)
    while left > 0:
        hungry = [at for at, number in enumerate(wanted) if shares[at] < number]
        if not hungry:
            break
        for at in hungry[:left]:
            shares[at] += 1
        left -= len(hungry[:left])
    return shares


def _section(section: Section, rows: int) -> Iterator[Text]:
    yield Text("")
    hidden = len(section.rows) - rows
    more = f"  ({hidden:,} more)" if hidden > 0 else ""
    yield Text.assemble((section.title, "bold"), (more, "dim"))
    if not section.rows:
        yield Text(f"  {section.otherwise}", style="dim")
        return
    table = [[Cell(head, "dim") for head in section.heads], *section.rows[:rows]]
    widths = [max(len(row[at].text) for row in table) for at in range(len(section.heads))]
    for row in table:
        cells = [
            Cell(cell.text.ljust(w) + GAP, cell.style) for cell, w in zip(row, widths, strict=True)
        ]
        yield _line(cells)


def _line(cells: Sequence[Cell]) -> Text:
    return Text.assemble(*((cell.text, cell.style) for cell in cells))
