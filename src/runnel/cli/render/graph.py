"""Draws a workflow graph as text or SVG; a graph that is too large becomes a list of layers."""

from html import escape
from math import ceil

from runnel.cli.render.graph_layout import (
    CONDITION_MARK,
    MAP_MARK,
    Box,
    GraphLayout,
    compute_layout,
    route_lines,
)
from runnel.cli.render.text import format_count
from runnel.core.graph import CompiledNode, Graph
from runnel.core.ids import NodeId
from runnel.core.message_text import escape_unprintable
from runnel.core.workflow import CORE_HANDLERS

LAYERS_MAX = 40
PARENTS_MAX = 3


def list_layers(graph: Graph, *, columns: int) -> str:
    """Returns a list of layers for a graph that is too large to draw: one shortened line per layer.

    The parents of a node follow the name of the node.
    """
    layers = graph.layers()
    digits = len(str(len(layers)))
    lines = [f"{format_count(len(graph), 'node')} in {format_count(len(layers), 'layer')}", ""]
    for number, ids in enumerate(layers[:LAYERS_MAX], start=1):
        room = max(20, columns - digits - 2)
        lines.append(f"{number:>{digits}}  {_format_layer(graph, ids, room)}")
    if len(layers) > LAYERS_MAX:
        lines.append(f"{'…':>{digits}}  and {format_count(len(layers) - LAYERS_MAX, 'more layer')}")
    return "\n".join(lines)


def _format_layer(graph: Graph, ids: list[NodeId], room: int) -> str:
    """Returns as many nodes of a layer as fit, and the number of nodes that are left out."""
    shown = ""
    for number, id_ in enumerate(ids):
        more = f" … {len(ids) - number:,} more"
        text = ("   " if shown else "") + id_ + _format_parents(graph, id_)
        is_last = number == len(ids) - 1
        if len(shown) + len(text) + (0 if is_last else len(more)) > room and shown:
            return shown + more
        shown += text
    return shown


def _format_parents(graph: Graph, id_: NodeId) -> str:
    parents = [graph.nodes[parent].node.id for parent in graph.node(id_).parents]
    if not parents:
        return ""
    more = len(parents) - PARENTS_MAX
    listed = ", ".join(parents[:PARENTS_MAX])
    return f" ← {listed} +{more:,}" if more > 0 else f" ← {listed}"


TEXT_NODES_MAX = 60
BOX_ROWS = 3


def draw_graph(graph: Graph, *, columns: int) -> str:
    """Returns a picture, or a list of layers if the picture would be too wide or too large."""
    lines = None
    if len(graph) <= TEXT_NODES_MAX:
        layout = compute_layout(graph)
        lines = _draw_picture(layout) if layout.width <= columns else None
    if lines is None:
        return list_layers(graph, columns=columns)
    return "\n".join([*lines, *_build_legend(graph)])


def _draw_picture(layout: GraphLayout) -> list[str] | None:
    lines: list[str] = []
    for depth in range(len(layout.layers)):
        lines += _draw_boxes(layout, depth)
        if depth < len(layout.layers) - 1:
            pairs = [
                (layout.boxes[above].center, layout.boxes[below].center)
                for above, below in layout.edges[depth]
            ]
            rows = route_lines(pairs, layout.width)
            if rows is None:
                return None
            lines += [*rows, _draw_arrows(layout, depth + 1)]
    return [line.rstrip() for line in lines]


def _draw_boxes(layout: GraphLayout, depth: int) -> list[str]:
    rows = [[" "] * layout.width for _ in range(BOX_ROWS)]
    leaving = {above for above, _ in layout.edges[depth]}
    for index in layout.layers[depth]:
        box = layout.boxes[index]
        if not box.label:
            for row in rows:
                row[box.center] = "│"
            continue
        inner = box.width - 2
        texts = ("╭" + "─" * inner + "╮", f"│ {box.label} │", "╰" + "─" * inner + "╯")
        for row, text in zip(rows, texts, strict=True):
            row[box.left : box.right] = text
        if index in leaving:
            rows[-1][box.center] = "┬"
    return ["".join(row) for row in rows]


def _draw_arrows(layout: GraphLayout, depth: int) -> str:
    row = [" "] * layout.width
    reached = {below for _, below in layout.edges[depth - 1]}
    for index in layout.layers[depth]:
        box = layout.boxes[index]
        if index in reached:
            row[box.center] = "▼" if box.label else "│"
    return "".join(row)


def _build_legend(graph: Graph) -> list[str]:
    legend = []
    if any(compiled.node.condition is not None for compiled in graph.nodes):
        legend.append(f"{CONDITION_MARK}   runs only when its condition is true")
    if any(compiled.node.for_each is not None for compiled in graph.nodes):
        legend.append(f"{MAP_MARK}  runs once for each item of a list")
    return ["", *legend] if legend else []


# A graph as an SVG image, for light and dark pages and for screen readers.
#
# The image has the same layout as the text, with one column as the unit. So every label in a
# monospaced font fits its box.

# With more nodes, crossing lines can't be told apart.
SVG_NODES_MAX = 500
COLUMN_WIDTH = 9.0
HANDLER_CHAR_WIDTH = 6.7
BOX_HEIGHT = 44.0
LAYER_HEIGHT = 108.0
MARGIN = 24.0
CORNER_RADIUS = 9
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SVG_STYLE = f"""
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


def render_svg(graph: Graph) -> str:
    """Returns an SVG document; its title and description describe the graph in words."""
    layout = compute_layout(
        graph, min_width=lambda index: _compute_min_width(graph.nodes[index].node.handler)
    )
    width = layout.width * COLUMN_WIDTH + 2 * MARGIN
    height = (len(layout.layers) - 1) * LAYER_HEIGHT + BOX_HEIGHT + 2 * MARGIN
    name = _escape_text(graph.workflow.name)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"',
            f'  width="{width:g}" height="{height:g}" role="img" aria-labelledby="title about">',
            f'  <title id="title">Workflow {name}</title>',
            f'  <desc id="about">{_escape_text(_describe_graph(graph))}</desc>',
            f"  <style>{SVG_STYLE}\n  </style>",
            f'  <rect class="back" width="{width:g}" height="{height:g}" rx="12"/>',
            *_draw_svg_edges(layout),
            *_draw_svg_boxes(layout, graph),
            "</svg>",
        ]
    )


def _compute_min_width(handler: str) -> int:
    """Returns the number of columns for the name of a handler, with a margin."""
    return ceil(len(handler) * HANDLER_CHAR_WIDTH / COLUMN_WIDTH) + 2


def _describe_graph(graph: Graph) -> str:
    """Lists each node with its parents, for screen readers."""
    sentences = [
        f"{format_count(len(graph), 'node')} in {format_count(len(graph.layers()), 'layer')}."
    ]
    for compiled in graph.nodes:
        parents = ", ".join(graph.nodes[parent].node.id for parent in compiled.parents)
        sentences.append(
            f"{compiled.node.id} after {parents}." if parents else f"{compiled.node.id}."
        )
    return " ".join(sentences)


def _draw_svg_edges(layout: GraphLayout) -> list[str]:
    """Draws curves from layer to layer; within a skipped layer, an edge is straight."""
    curves = []
    for depth, pairs in enumerate(layout.edges):
        for above, below in pairs:
            upper, lower = layout.boxes[above], layout.boxes[below]
            start, end = _compute_top_y(depth) + BOX_HEIGHT, _compute_top_y(depth + 1)
            if not lower.label:
                end += BOX_HEIGHT
            curves.append(
                _draw_svg_curve(
                    _compute_center_x(upper),
                    start,
                    _compute_center_x(lower),
                    end,
                    has_tip=bool(lower.label),
                )
            )
    return curves


def _draw_svg_curve(
    x1: float, y1: float, x2: float, y2: float, *, has_tip: bool
) -> str:  # two points
    tip = 8.0 if has_tip else 0.0
    last = y2 - tip
    bend = _compute_top_y(1) - _compute_top_y(0) - BOX_HEIGHT
    straight = max(0.0, last - y1 - (bend - tip))
    middle = y1 + (last - y1 - straight) / 2
    path = f"M{x1:g} {y1:g} C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {last - straight:g}"
    path += f" V{last:g}" if straight else ""
    line = f'  <path class="edge" d="{path}"/>'
    if not has_tip:
        return line
    return line + f'<path class="tip" d="M{x2 - 5:g} {last:g} h10 L{x2:g} {y2:g} z"/>'


def _draw_svg_boxes(layout: GraphLayout, graph: Graph) -> list[str]:
    shapes = []
    for depth, layer in enumerate(layout.layers):
        for index in layer:
            box = layout.boxes[index]
            if box.label:
                shapes += _draw_svg_box(box, depth, graph.nodes[index])
    return shapes


def _draw_svg_box(box: Box, depth: int, compiled: CompiledNode) -> list[str]:
    """Draws a map as a stack of boxes, and a conditional node with a dashed border."""
    left, top, middle = (
        box.left * COLUMN_WIDTH + MARGIN,
        _compute_top_y(depth),
        _compute_center_x(box),
    )
    width = box.width * COLUMN_WIDTH
    node = compiled.node
    handler = _escape_text(node.handler)
    classes = ["node"]
    classes += ["builtin"] if node.handler in {"input", "output", *CORE_HANDLERS} else []
    classes += ["conditional"] if node.condition is not None else []
    hint = f"{node.id} ({node.handler})"
    hint += "; once for each item of a list" if node.for_each is not None else ""
    hint += f"; only if {node.condition}" if node.condition is not None else ""
    shape = f'width="{width:g}" height="{BOX_HEIGHT:g}" rx="{CORNER_RADIUS}"'
    piled = []
    if node.for_each is not None:
        piled = [f'    <rect class="behind" x="{left + 5:g}" y="{top + 5:g}" {shape}/>']
    return [
        f'  <g class="{" ".join(classes)}">',
        f"    <title>{_escape_text(hint)}</title>",
        *piled,
        f'    <rect class="box" x="{left:g}" y="{top:g}" {shape}/>',
        f'    <text class="name" x="{middle:g}" y="{top + 20:g}">{_escape_text(box.label)}</text>',
        f'    <text class="handler" x="{middle:g}" y="{top + 35:g}">{handler}</text>',
        "  </g>",
    ]


def _compute_center_x(box: Box) -> float:
    return (box.left + box.width / 2) * COLUMN_WIDTH + MARGIN


def _compute_top_y(depth: int) -> float:
    return depth * LAYER_HEIGHT + MARGIN


def _escape_text(text: str) -> str:
    """Escapes text for XML, which allows no control characters, not even as entities."""
    return escape(escape_unprintable(text))
