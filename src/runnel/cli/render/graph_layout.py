"""Where each box of a drawing goes: layer by layer, ordered and placed so that lines are short.

An edge over several layers passes an empty place in each of them, so that every line only leads
from one layer to the next.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runnel.cli.render.text import short
from runnel.core.graph import Graph

GAP = 2
SWEEPS = 8
LABEL_CHARS_MAX = 24
BORDER_CHARS = 4
MAP_MARK = "×n"  # noqa: RUF001  # the sign for "times" is meant
CONDITION_MARK = "?"


@dataclass(slots=True)
class Place:
    """A box, or with no label the place where a line passes; `center` is a column."""

    label: str
    width: int
    center: int = 0

    @property
    def left(self) -> int:
        return self.center - self.width // 2

    @property
    def right(self) -> int:
        """The first column behind it."""
        return self.left + self.width


@dataclass(slots=True)
class Layout:
    """`edges[i]` lead from layer i to layer i + 1, as pairs of indexes into `places`."""

    places: list[Place]
    layers: list[list[int]]
    edges: list[list[tuple[int, int]]]

    @property
    def width(self) -> int:
        return max(place.right for place in self.places)


def lay_out(graph: Graph, *, least: Callable[[int], int] = lambda _index: 0) -> Layout:
    """Each box is as wide as its label needs, and at least as `least` says for its node."""
    layout = _with_passages(graph, least)
    _order(layout)
    _pack(layout)
    for _ in range(SWEEPS):
        _pull(layout, downwards=True)
        _pull(layout, downwards=False)
    _pull(layout, downwards=True)
    offset = min(place.left for place in layout.places)
    for place in layout.places:
        place.center -= offset
    return layout


def label_of(graph: Graph, index: int) -> str:
    node = graph.nodes[index].node
    name = short(node.id, LABEL_CHARS_MAX)
    if node.for_each is not None:
        return f"{name} {MAP_MARK}"
    return name if node.condition is None else f"{name} {CONDITION_MARK}"


def _with_passages(graph: Graph, least: Callable[[int], int]) -> Layout:
    depth = {graph.index[id_]: d for d, ids in enumerate(graph.layers()) for id_ in ids}
    places = []
    for index in range(len(graph)):
        label = label_of(graph, index)
        places.append(Place(label, max(least(index), len(label) + BORDER_CHARS)))
    layers: list[list[int]] = [[graph.index[id_] for id_ in ids] for ids in graph.layers()]
    edges: list[list[tuple[int, int]]] = [[] for _ in layers]
    for each in graph.nodes:
        for child in each.children:
            above = each.index
            for between in range(depth[each.index] + 1, depth[child]):
                places.append(Place("", 1))
                layers[between].append(len(places) - 1)
                edges[between - 1].append((above, len(places) - 1))
                above = len(places) - 1
            edges[depth[child] - 1].append((above, child))
    return Layout(places, layers, edges)


def _order(layout: Layout) -> None:
    """Barycenter: each place goes where its neighbours are, in turn from above and from below."""
    for sweep in range(SWEEPS):
        order = range(1, len(layout.layers))
        for depth in order if sweep % 2 == 0 else [d - 1 for d in reversed(order)]:
            fixed = depth - 1 if sweep % 2 == 0 else depth + 1
            rank = {place: float(i) for i, place in enumerate(layout.layers[fixed])}
            near = _neighbours(layout, depth, fixed)
            own = {place: float(i) for i, place in enumerate(layout.layers[depth])}
            layout.layers[depth].sort(
                key=lambda place: _mean([rank[n] for n in near[place]], own[place])
            )


def _neighbours(layout: Layout, depth: int, fixed: int) -> dict[int, list[int]]:
    """Of each place in the layer `depth`, those in the adjoining layer `fixed`."""
    near: dict[int, list[int]] = {place: [] for place in layout.layers[depth]}
    for above, below in layout.edges[min(depth, fixed)]:
        if fixed < depth:
            near[below].append(above)
        else:
            near[above].append(below)
    return near


def _pack(layout: Layout) -> None:
    for layer in layout.layers:
        column = 0
        for place in (layout.places[index] for index in layer):
            place.center = column + place.width // 2
            column += place.width + GAP


def _pull(layout: Layout, *, downwards: bool) -> None:
    depths = range(1, len(layout.layers))
    for depth in depths if downwards else [d - 1 for d in reversed(depths)]:
        fixed = depth - 1 if downwards else depth + 1
        near = _neighbours(layout, depth, fixed)
        wanted = [
            _middle([layout.places[n].center for n in near[place]], layout.places[place].center)
            for place in layout.layers[depth]
        ]
        _put([layout.places[index] for index in layout.layers[depth]], wanted)


def _put(row: Sequence[Place], wanted: Sequence[int]) -> None:
    """As near to the wanted centers as the widths allow: pushed from the left and from the right,
    the mean of the two keeps every distance that both keep.
    """
    from_left: list[int] = []
    for i, center in enumerate(wanted):
        least = from_left[-1] + _distance(row[i - 1], row[i]) if i else center
        from_left.append(max(center, least))
    from_right: list[int] = []
    for i in range(len(row) - 1, -1, -1):
        most = from_right[-1] - _distance(row[i], row[i + 1]) if from_right else wanted[i]
        from_right.append(min(wanted[i], most))
    for place, low, high in zip(row, reversed(from_right), from_left, strict=True):
        place.center = (low + high) // 2


def _distance(left: Place, right: Place) -> int:
    return left.width - left.width // 2 + GAP + right.width // 2


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _middle(values: list[int], otherwise: int) -> int:
    """The median: one neighbour of three is then exactly in line, which a mean would miss."""
    if not values:
        return otherwise
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


# The lines between two layers: which row each horizontal part takes, and what that looks like.

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
