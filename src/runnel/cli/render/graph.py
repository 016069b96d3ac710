"""A graph as a picture for a terminal: boxes in layers, joined by lines."""

from html import escape
from math import ceil

from runnel.cli.render.graph_layout import CONDITION_MARK, MAP_MARK, Layout, Place, lay_out, route
from runnel.cli.render.text import count
from runnel.core.graph import CompiledNode, Graph
from runnel.core.ids import NodeId
from runnel.core.wording import printable
from runnel.core.workflow import CORE_HANDLERS

# A graph that is too large for a picture: one line per layer, shortened.

LAYERS_MAX = 40
PARENTS_MAX = 3


def list_layers(graph: Graph, *, columns: int) -> str:
    """Every name is followed by its parents where the layer above does not tell them."""
    layers = graph.layers()
    digits = len(str(len(layers)))
    lines = [f"{count(len(graph), 'node')} in {count(len(layers), 'layer')}", ""]
    for number, ids in enumerate(layers[:LAYERS_MAX], start=1):
        room = max(20, columns - digits - 2)
        lines.append(f"{number:>{digits}}  {_names(graph, ids, room)}")
    if len(layers) > LAYERS_MAX:
        lines.append(f"{'…':>{digits}}  and {count(len(layers) - LAYERS_MAX, 'more layer')}")
    return "\n".join(lines)


def _names(graph: Graph, ids: list[NodeId], room: int) -> str:
    """As many as fit, and how many more there are."""
    shown = ""
    for number, id_ in enumerate(ids):
        more = f" … {len(ids) - number:,} more"
        text = ("   " if shown else "") + id_ + _parents(graph, id_)
        is_last = number == len(ids) - 1
        if len(shown) + len(text) + (0 if is_last else len(more)) > room and shown:
            return shown + more
        shown += text
    return shown


def _parents(graph: Graph, id_: NodeId) -> str:
    parents = [graph.nodes[parent].node.id for parent in graph.node(id_).parents]
    if not parents:
        return ""
    more = len(parents) - PARENTS_MAX
    listed = ", ".join(parents[:PARENTS_MAX])
    return f" ← {listed} +{more:,}" if more > 0 else f" ← {listed}"


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


# A graph as an SVG image: readable in light and dark, and by those who hear it read.
#
# The same layout as on a terminal, with a column as a unit: so any label fits its box in a
# monospaced font.

# Of the layout, in which lines that cross are told apart by hand and eye: beyond it, nobody does.
SVG_NODES_MAX = 500
COLUMN = 9.0
SMALL = 6.7
BOX_HEIGHT = 44.0
LAYER_HEIGHT = 108.0
MARGIN = 24.0
RADIUS = 9
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
STYLE = f"""
    .back {{ fill: #ffffff }}
    .edge {{ fill: none; stroke: #8a93a3; stroke-width: 1.6 }}
    .tip {{ fill: #8a93a3 }}
    .box {{ fill: #f3f6fb; stroke: #4a6fa5; stroke-width: 1.6 }}
    .builtin .box {{ fill: #f6f6f4; stroke: #8a8a80 }}
    .conditional .box {{ stroke-dasharray: 6 4 }}
    .behind {{ fill: #e4ebf5; stroke: #4a6fa5; stroke-width: 1.2 }}
    .name {{ font: 15px {FONT}; fill: #1d2733; text-anchor: middle }}
    .handler {{ font: 11px {FONT}; fill: #5b6675; text-anchor: middle }}
    @media (prefers-color-scheme: dark) {{
      .back {{ fill: #14181f }}
      .edge {{ stroke: #7c8798 }}
      .tip {{ fill: #7c8798 }}
      .box {{ fill: #1f2835; stroke: #7fa6dd }}
      .builtin .box {{ fill: #23241f; stroke: #a5a595 }}
      .behind {{ fill: #2b3747; stroke: #7fa6dd }}
      .name {{ fill: #e8edf4 }}
      .handler {{ fill: #a5b0bf }}
    }}"""


def svg(graph: Graph) -> str:
    """A whole document; its title and description say the graph in words."""
    layout = lay_out(graph, least=lambda index: _least(graph.nodes[index].node.handler))
    width = layout.width * COLUMN + 2 * MARGIN
    height = (len(layout.layers) - 1) * LAYER_HEIGHT + BOX_HEIGHT + 2 * MARGIN
    name = _text(graph.workflow.name)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"',
            f'  width="{width:g}" height="{height:g}" role="img" aria-labelledby="title about">',
            f'  <title id="title">Workflow {name}</title>',
            f'  <desc id="about">{_text(_description(graph))}</desc>',
            f"  <style>{STYLE}\n  </style>",
            f'  <rect class="back" width="{width:g}" height="{height:g}" rx="12"/>',
            *_edges(layout),
            *_svg_boxes(layout, graph),
            "</svg>",
        ]
    )


def _least(handler: str) -> int:
    """Columns in which the name of a handler fits, with some air."""
    return ceil(len(handler) * SMALL / COLUMN) + 2


def _description(graph: Graph) -> str:
    """Each node, and what it comes after."""
    sentences = [f"{count(len(graph), 'node')} in {count(len(graph.layers()), 'layer')}."]
    for each in graph.nodes:
        parents = ", ".join(graph.nodes[parent].node.id for parent in each.parents)
        sentences.append(f"{each.node.id} after {parents}." if parents else f"{each.node.id}.")
    return " ".join(sentences)


def _edges(layout: Layout) -> list[str]:
    """Curves from layer to layer; a line that passes a layer goes straight through it."""
    found = []
    for depth, pairs in enumerate(layout.edges):
        for above, below in pairs:
            upper, lower = layout.places[above], layout.places[below]
            start, end = _top(depth) + BOX_HEIGHT, _top(depth + 1)
            if not lower.label:
                end += BOX_HEIGHT
            found.append(_curve(_x(upper), start, _x(lower), end, has_tip=bool(lower.label)))
    return found


def _curve(x1: float, y1: float, x2: float, y2: float, *, has_tip: bool) -> str:  # two points
    tip = 8.0 if has_tip else 0.0
    last = y2 - tip
    bend = _top(1) - _top(0) - BOX_HEIGHT
    straight = max(0.0, last - y1 - (bend - tip))
    middle = y1 + (last - y1 - straight) / 2
    path = f"M{x1:g} {y1:g} C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {last - straight:g}"
    path += f" V{last:g}" if straight else ""
    line = f'  <path class="edge" d="{path}"/>'
    if not has_tip:
        return line
    return line + f'<path class="tip" d="M{x2 - 5:g} {last:g} h10 L{x2:g} {y2:g} z"/>'


def _svg_boxes(layout: Layout, graph: Graph) -> list[str]:
    found = []
    for depth, layer in enumerate(layout.layers):
        for index in layer:
            place = layout.places[index]
            if place.label:
                found += _box(place, depth, graph.nodes[index])
    return found


def _box(place: Place, depth: int, each: CompiledNode) -> list[str]:
    """A map is a pile of boxes, a conditional node has a dashed border."""
    left, top, middle = place.left * COLUMN + MARGIN, _top(depth), _x(place)
    width = place.width * COLUMN
    node = each.node
    classes = ["node"]
    classes += ["builtin"] if node.handler in {"input", "output", *CORE_HANDLERS} else []
    classes += ["conditional"] if node.condition is not None else []
    hint = f"{node.id} ({node.handler})"
    hint += "; once for each item of a list" if node.for_each is not None else ""
    hint += f"; only if {node.condition}" if node.condition is not None else ""
    shape = f'width="{width:g}" height="{BOX_HEIGHT:g}" rx="{RADIUS}"'
    piled = []
    if node.for_each is not None:
        piled = [f'    <rect class="behind" x="{left + 5:g}" y="{top + 5:g}" {shape}/>']
    return [
        f'  <g class="{" ".join(classes)}">',
        f"    <title>{_text(hint)}</title>",
        *piled,
        f'    <rect class="box" x="{left:g}" y="{top:g}" {shape}/>',
        f'    <text class="name" x="{middle:g}" y="{top + 20:g}">{_text(place.label)}</text>',
        f'    <text class="handler" x="{middle:g}" y="{top + 35:g}">{_text(node.handler)}</text>',
        "  </g>",
    ]


def _x(place: Place) -> float:
    return (place.left + place.width / 2) * COLUMN + MARGIN


def _top(depth: int) -> float:
    return depth * LAYER_HEIGHT + MARGIN


def _text(text: str) -> str:
    """XML has no control characters, not even written as entities."""
    return escape(printable(text))
