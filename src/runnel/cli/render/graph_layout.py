"""Computes the layout of a drawn graph: layers of boxes, ordered so that lines are short.

An edge that skips layers passes through an empty box in each skipped layer. So every line leads
from one layer to the next.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runnel.cli.render.text import shorten
from runnel.core.graph import Graph

BOX_GAP = 2
SWEEP_COUNT = 8
LABEL_CHARS_MAX = 24
BORDER_CHARS = 4
MAP_MARK = "×n"  # noqa: RUF001  # the sign for "times" is meant
CONDITION_MARK = "?"


@dataclass(slots=True)
class Box:
    """A box of the drawing; `center` is a column. A line passes through a box without a label."""

    label: str
    width: int
    center: int = 0

    @property
    def left(self) -> int:
        return self.center - self.width // 2

    @property
    def right(self) -> int:
        """Returns the first column after the box."""
        return self.left + self.width


@dataclass(slots=True)
class GraphLayout:
    """The boxes of a drawn graph, by layer.

    `edges[i]` has pairs of indexes into `boxes`: lines from layer i to layer i + 1.
    """

    boxes: list[Box]
    layers: list[list[int]]
    edges: list[list[tuple[int, int]]]

    @property
    def width(self) -> int:
        return max(box.right for box in self.boxes)


def compute_layout(
    graph: Graph, *, min_width: Callable[[int], int] = lambda _index: 0
) -> GraphLayout:
    """Returns the layout of a graph; each box is wide enough for its label and `min_width`."""
    layout = _build_layout(graph, min_width)
    _order_layers(layout)
    _pack_layers(layout)
    for _ in range(SWEEP_COUNT):
        _align_layers(layout, downwards=True)
        _align_layers(layout, downwards=False)
    _align_layers(layout, downwards=True)
    offset = min(box.left for box in layout.boxes)
    for box in layout.boxes:
        box.center -= offset
    return layout


def make_label(graph: Graph, index: int) -> str:
    node = graph.nodes[index].node
    name = shorten(node.id, LABEL_CHARS_MAX)
    if node.for_each is not None:
        return f"{name} {MAP_MARK}"
    return name if node.condition is None else f"{name} {CONDITION_MARK}"


def _build_layout(graph: Graph, min_width: Callable[[int], int]) -> GraphLayout:
    depth = {graph.index[id_]: d for d, ids in enumerate(graph.layers()) for id_ in ids}
    boxes = []
    for index in range(len(graph)):
        label = make_label(graph, index)
        boxes.append(Box(label, max(min_width(index), len(label) + BORDER_CHARS)))
    layers: list[list[int]] = [[graph.index[id_] for id_ in ids] for ids in graph.layers()]
    edges: list[list[tuple[int, int]]] = [[] for _ in layers]
    for compiled in graph.nodes:
        for child in compiled.children:
            above = compiled.index
            for between in range(depth[compiled.index] + 1, depth[child]):
                boxes.append(Box("", 1))
                layers[between].append(len(boxes) - 1)
                edges[between - 1].append((above, len(boxes) - 1))
                above = len(boxes) - 1
            edges[depth[child] - 1].append((above, child))
    return GraphLayout(boxes, layers, edges)


def _order_layers(layout: GraphLayout) -> None:
    """Orders the boxes of each layer by the mean position of their neighbours.

    Sweeps downwards and upwards in turn.
    """
    for sweep in range(SWEEP_COUNT):
        order = range(1, len(layout.layers))
        for depth in order if sweep % 2 == 0 else [d - 1 for d in reversed(order)]:
            fixed = depth - 1 if sweep % 2 == 0 else depth + 1
            rank = {place: float(i) for i, place in enumerate(layout.layers[fixed])}
            near = _find_neighbours(layout, depth, fixed)
            own = {place: float(i) for i, place in enumerate(layout.layers[depth])}
            layout.layers[depth].sort(
                key=lambda place: _compute_mean([rank[n] for n in near[place]], own[place])
            )


def _find_neighbours(layout: GraphLayout, depth: int, fixed: int) -> dict[int, list[int]]:
    """Maps each box of the layer `depth` to its neighbours in the adjoining layer `fixed`."""
    near: dict[int, list[int]] = {place: [] for place in layout.layers[depth]}
    for above, below in layout.edges[min(depth, fixed)]:
        if fixed < depth:
            near[below].append(above)
        else:
            near[above].append(below)
    return near


def _pack_layers(layout: GraphLayout) -> None:
    for layer in layout.layers:
        column = 0
        for box in (layout.boxes[index] for index in layer):
            box.center = column + box.width // 2
            column += box.width + BOX_GAP


def _align_layers(layout: GraphLayout, *, downwards: bool) -> None:
    depths = range(1, len(layout.layers))
    for depth in depths if downwards else [d - 1 for d in reversed(depths)]:
        fixed = depth - 1 if downwards else depth + 1
        near = _find_neighbours(layout, depth, fixed)
        centers = [
            _compute_median(
                [layout.boxes[n].center for n in near[place]], layout.boxes[place].center
            )
            for place in layout.layers[depth]
        ]
        _position_boxes([layout.boxes[index] for index in layout.layers[depth]], centers)


def _position_boxes(row: Sequence[Box], centers: Sequence[int]) -> None:
    """Moves the boxes of a row as near to `centers` as their widths allow.

    Computes positions from the left and from the right. Both keep the distances between boxes, and
    so does their mean.
    """
    from_left: list[int] = []
    for i, center in enumerate(centers):
        least = from_left[-1] + _compute_distance(row[i - 1], row[i]) if i else center
        from_left.append(max(center, least))
    from_right: list[int] = []
    for i in range(len(row) - 1, -1, -1):
        most = from_right[-1] - _compute_distance(row[i], row[i + 1]) if from_right else centers[i]
        from_right.append(min(centers[i], most))
    for box, low, high in zip(row, reversed(from_right), from_left, strict=True):
        box.center = (low + high) // 2


def _compute_distance(left: Box, right: Box) -> int:
    return left.width - left.width // 2 + BOX_GAP + right.width // 2


def _compute_mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _compute_median(values: list[int], default: int) -> int:
    """Returns the median of the values, or `default` without values.

    Unlike a mean, the median aligns a box exactly with one of three neighbours.
    """
    if not values:
        return default
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


# Lines between two layers: the row of each horizontal part, and its glyphs.

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_VERTICAL, _HORIZONTAL = UP | DOWN, LEFT | RIGHT
LINE_GLYPHS: Mapping[int, str] = {
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
class LineBundle:
    """Lines that share a horizontal part, because they leave or reach the same box."""

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


def route_lines(lines: Sequence[tuple[int, int]], width: int) -> list[str] | None:
    """Returns the rows of text between two layers; the list is empty if all lines are straight.

    Returns None if two lines could be mistaken for each other.
    """
    bundles = _bundle_lines(lines)
    rows = _assign_rows(bundles)
    if rows is None:
        return None
    grid = [[0] * width for _ in range(rows)]
    for bundle in bundles:
        _draw_bundle(grid, bundle)
    return ["".join(LINE_GLYPHS[cell] for cell in row) for row in grid]


def _bundle_lines(lines: Sequence[tuple[int, int]]) -> list[LineBundle]:
    """Bundles lines that leave the same box; bundles all other lines by the box they reach."""
    leaving: dict[int, int] = {}
    for top, _ in lines:
        leaving[top] = leaving.get(top, 0) + 1
    bundles: dict[tuple[str, int], LineBundle] = {}
    for top, bottom in lines:
        key = ("top", top) if leaving[top] > 1 else ("bottom", bottom)
        bundle = bundles.setdefault(key, LineBundle())
        bundle.tops.add(top)
        bundle.bottoms.add(bottom)
    return list(bundles.values())


def _assign_rows(bundles: Sequence[LineBundle]) -> int | None:
    """Gives each bundle the first free row; returns the number of rows.

    Returns None if bundles would have to turn above each other in a circle.
    """
    bent = [bundle for bundle in bundles if not bundle.is_straight]
    above = {id(bundle): _find_bundles_above(bundle, bent) for bundle in bent}
    placed: list[LineBundle] = []
    while len(placed) < len(bent):
        done = {id(bundle) for bundle in placed}
        ready = [
            bundle
            for bundle in bent
            if id(bundle) not in done and all(id(other) in done for other in above[id(bundle)])
        ]
        if not ready:
            return None
        bundle = min(ready, key=lambda other: other.left)
        bundle.row = max((other.row + 1 for other in above[id(bundle)]), default=0)
        while any(other.row == bundle.row and _is_overlapping(other, bundle) for other in placed):
            bundle.row += 1
        placed.append(bundle)
    return max((bundle.row + 1 for bundle in bent), default=0)


def _find_bundles_above(bundle: LineBundle, bundles: Iterable[LineBundle]) -> list[LineBundle]:
    """Returns the bundles that must turn above this one, because they share a column with it."""
    return [
        other
        for other in bundles
        if other is not bundle and (other.tops - other.bottoms) & (bundle.bottoms - bundle.tops)
    ]


def _is_overlapping(bundle: LineBundle, other: LineBundle) -> bool:
    return bundle.left <= other.right and other.left <= bundle.right


def _draw_bundle(grid: list[list[int]], bundle: LineBundle) -> None:
    last = len(grid) - 1
    for column in bundle.tops:
        for row in range(bundle.row if column not in bundle.bottoms else last + 1):
            _merge_cell(grid, row, column, _VERTICAL)
    for column in bundle.bottoms:
        for row in range(bundle.row + 1, last + 1):
            _merge_cell(grid, row, column, _VERTICAL)
    if bundle.is_straight:
        return
    for column in range(bundle.left, bundle.right + 1):
        _merge_cell(grid, bundle.row, column, _choose_directions(bundle, column))


def _choose_directions(bundle: LineBundle, column: int) -> int:
    directions = 0
    directions |= LEFT if column > bundle.left else 0
    directions |= RIGHT if column < bundle.right else 0
    directions |= UP if column in bundle.tops else 0
    directions |= DOWN if column in bundle.bottoms else 0
    return directions


def _merge_cell(grid: list[list[int]], row: int, column: int, directions: int) -> None:
    """Adds directions to a cell; where two lines cross, the vertical one stays unbroken."""
    known = grid[row][column]
    if {known, directions} == {_VERTICAL, _HORIZONTAL}:
        grid[row][column] = _VERTICAL
    else:
        grid[row][column] = known | directions
