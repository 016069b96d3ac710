"""The lines between two layers: which row each horizontal part takes, and what that looks like."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_VERTICAL, _HORIZONTAL = UP | DOWN, LEFT | RIGHT
GLYPHS: Mapping[int, str] = {
    0: " ",
    UP: "│",
    DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    _VERTICAL: "│",
    _HORIZONTAL: "─",
    DOWN | RIGHT: "╭",
    DOWN | LEFT: "╮",
    UP | RIGHT: "╰",
    UP | LEFT: "╯",
    _VERTICAL | RIGHT: "├",
    _VERTICAL | LEFT: "┤",
    _HORIZONTAL | DOWN: "┬",
    _HORIZONTAL | UP: "┴",
    _VERTICAL | _HORIZONTAL: "┼",
}


@dataclass(slots=True)
class Bundle:
    """Lines that share a horizontal part, because they leave one place or reach one."""

    tops: set[int] = field(default_factory=set)
    bottoms: set[int] = field(default_factory=set)
    row: int = 0

    @property
    def left(self) -> int:
        return min(self.tops | self.bottoms)

    @property
    def right(self) -> int:
        return max(self.tops | self.bottoms)

    @property
    def is_straight(self) -> bool:
        return self.left == self.right


def route(lines: Sequence[tuple[int, int]], width: int) -> list[str] | None:
    """Rows of text between two layers for lines from column to column, none if all are straight.

    None when they can't be drawn without one being taken for another.
    """
    bundles = _bundle(lines)
    rows = _assign_rows(bundles)
    if rows is None:
        return None
    grid = [[0] * width for _ in range(rows)]
    for bundle in bundles:
        _draw(grid, bundle)
    return ["".join(GLYPHS[cell] for cell in row) for row in grid]


def _bundle(lines: Sequence[tuple[int, int]]) -> list[Bundle]:
    """By the upper end where several lines leave it, otherwise by the lower end."""
    leaving: dict[int, int] = {}
    for top, _ in lines:
        leaving[top] = leaving.get(top, 0) + 1
    found: dict[tuple[str, int], Bundle] = {}
    for top, bottom in lines:
        key = ("top", top) if leaving[top] > 1 else ("bottom", bottom)
        bundle = found.setdefault(key, Bundle())
        bundle.tops.add(top)
        bundle.bottoms.add(bottom)
    return list(found.values())


def _assign_rows(bundles: Sequence[Bundle]) -> int | None:
    """Gives each bundle the first row that is free and allowed; the number of rows."""
    bent = [bundle for bundle in bundles if not bundle.is_straight]
    above = {id(bundle): _must_be_above(bundle, bent) for bundle in bent}
    placed: list[Bundle] = []
    while len(placed) < len(bent):
        done = {id(bundle) for bundle in placed}
        ready = [
            bundle
            for bundle in bent
            if id(bundle) not in done and all(id(each) in done for each in above[id(bundle)])
        ]
        if not ready:
            return None
        bundle = min(ready, key=lambda each: each.left)
        bundle.row = max((each.row + 1 for each in above[id(bundle)]), default=0)
        while any(each.row == bundle.row and _overlap(each, bundle) for each in placed):
            bundle.row += 1
        placed.append(bundle)
    return max((bundle.row + 1 for bundle in bent), default=0)


def _must_be_above(bundle: Bundle, others: Iterable[Bundle]) -> list[Bundle]:
    """Those that come down in a column in which this one goes on down: they must turn before."""
    return [
        other
        for other in others
        if other is not bundle and (other.tops - other.bottoms) & (bundle.bottoms - bundle.tops)
    ]


def _overlap(one: Bundle, other: Bundle) -> bool:
    return one.left <= other.right and other.left <= one.right


def _draw(grid: list[list[int]], bundle: Bundle) -> None:
    last = len(grid) - 1
    for column in bundle.tops:
        for row in range(bundle.row if column not in bundle.bottoms else last + 1):
            _cross(grid, row, column, _VERTICAL)
    for column in bundle.bottoms:
        for row in range(bundle.row + 1, last + 1):
            _cross(grid, row, column, _VERTICAL)
    if bundle.is_straight:
        return
    for column in range(bundle.left, bundle.right + 1):
        _cross(grid, bundle.row, column, _turn(bundle, column))


def _turn(bundle: Bundle, column: int) -> int:
    found = 0
    found |= LEFT if column > bundle.left else 0
    found |= RIGHT if column < bundle.right else 0
    found |= UP if column in bundle.tops else 0
    found |= DOWN if column in bundle.bottoms else 0
    return found


def _cross(grid: list[list[int]], row: int, column: int, found: int) -> None:
    """Where two lines only cross, the upright one is drawn through."""
    known = grid[row][column]
    if {known, found} == {_VERTICAL, _HORIZONTAL}:
        grid[row][column] = _VERTICAL
    else:
        grid[row][column] = known | found
