"""A graph as a picture for a terminal: boxes in layers, joined by lines."""

from runnel.cli.drawing.channel import route
from runnel.cli.drawing.layers import list_layers
from runnel.cli.drawing.layout import CONDITION_MARK, MAP_MARK, Layout, lay_out
from runnel.core.graph import Graph

NODES_MAX = 60
BOX_ROWS = 3


def draw(graph: Graph, *, columns: int) -> str:
    """The picture, or a list by layer when it would be too wide or too large to be read."""
    lines = None
    if len(graph) <= NODES_MAX:
        layout = lay_out(graph)
        lines = _picture(layout) if layout.width <= columns else None
    if lines is None:
        return list_layers(graph, columns=columns)
    return "\n".join([*lines, *_legend(graph)])


def _picture(layout: Layout) -> list[str] | None:
    lines: list[str] = []
    for depth in range(len(layout.layers)):
        lines += _boxes(layout, depth)
        if depth < len(layout.layers) - 1:
            pairs = [
                (layout.places[above].center, layout.places[below].center)
                for above, below in layout.edges[depth]
            ]
            rows = route(pairs, layout.width)
            if rows is None:
                return None
            lines += [*rows, _arrows(layout, depth + 1)]
    return [line.rstrip() for line in lines]


def _boxes(layout: Layout, depth: int) -> list[str]:
    rows = [[" "] * layout.width for _ in range(BOX_ROWS)]
    leaving = {above for above, _ in layout.edges[depth]}
    for index in layout.layers[depth]:
        place = layout.places[index]
        if not place.label:
            for row in rows:
                row[place.center] = "│"
            continue
        inner = place.width - 2
        texts = ("╭" + "─" * inner + "╮", f"│ {place.label} │", "╰" + "─" * inner + "╯")
        for row, text in zip(rows, texts, strict=True):
            row[place.left : place.right] = text
        if index in leaving:
            rows[-1][place.center] = "┬"
    return ["".join(row) for row in rows]


def _arrows(layout: Layout, depth: int) -> str:
    row = [" "] * layout.width
    reached = {below for _, below in layout.edges[depth - 1]}
    for index in layout.layers[depth]:
        place = layout.places[index]
        if index in reached:
            row[place.center] = "▼" if place.label else "│"
    return "".join(row)


def _legend(graph: Graph) -> list[str]:
    legend = []
    if any(each.node.condition is not None for each in graph.nodes):
        legend.append(f"{CONDITION_MARK}   runs only when its condition is true")
    if any(each.node.for_each is not None for each in graph.nodes):
        legend.append(f"{MAP_MARK}  runs once for each item of a list")
    return ["", *legend] if legend else []
