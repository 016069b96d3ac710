"""Drawings of graphs show every node and every edge."""

import itertools
from xml.etree import ElementTree as ET

import msgspec
import pytest

from runnel.cli.render.graph import draw_graph, list_layers, render_svg
from runnel.cli.render.graph_layout import route_lines
from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.workflow import Node, Workflow
from runnel.views import build_document
from runnel.views.workflow import build_graph_view, escape_label, render_mermaid
from tests.unit.cli.graphs import graph, workflow

SVG = "{http://www.w3.org/2000/svg}"
DIAMOND = """\
      ╭───╮
      │ a │
      ╰─┬─╯
    ╭───┴──╮
    ▼      ▼
  ╭───╮  ╭───╮
  │ b │  │ c │
  ╰─┬─╯  ╰─┬─╯
    ╰──┬───╯
       ▼
     ╭───╮
     │ d │
     ╰───╯"""

CHAIN = """\
╭───╮
│ a │
╰─┬─╯
  ▼
╭───╮
│ b │
╰───╯"""


def remove_margin(text: str) -> list[str]:
    lines = text.splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return [line[margin:] for line in lines]


def test_a_chain_is_drawn_with_boxes_and_arrows() -> None:
    assert draw_graph(graph({"a": "", "b": "a"}), columns=80) == CHAIN


def test_a_diamond_is_drawn_as_a_diamond() -> None:
    drawn = draw_graph(graph({"a": "", "b": "a", "c": "a", "d": "b c"}), columns=80)

    assert remove_margin(drawn) == remove_margin(DIAMOND)


def test_an_edge_over_several_layers_passes_beside_the_boxes() -> None:
    drawn = draw_graph(graph({"a": "", "b": "a", "c": "b a"}), columns=80).splitlines()

    row_of_b = next(line for line in drawn if "│ b │" in line)
    assert row_of_b.replace("│ b │", "").strip() == "│"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(2, 2)], []),
        ([(2, 4)], ["  ╰─╮  "]),
        ([(4, 2)], ["  ╭─╯  "]),
        ([(2, 1), (2, 4)], [" ╭┴─╮  "]),
        ([(1, 3), (5, 3)], [" ╰─┬─╯ "]),
        ([(0, 4), (2, 2)], ["╰─│─╮  "]),
    ],
)
def test_lines_between_two_layers_bend_branch_join_and_cross(
    lines: list[tuple[int, int]], expected: list[str]
) -> None:
    assert route_lines(lines, 7) == expected


def test_ambiguous_lines_are_not_drawn() -> None:
    assert route_lines([(0, 4), (4, 0)], 5) is None


def test_two_lines_never_share_a_segment() -> None:
    rows = route_lines([(0, 4), (4, 8)], 9)

    assert rows == ["│   ╰───╮", "╰───╮   │"]


def test_conditions_and_maps_are_marked_and_the_legend_explains_the_marks() -> None:
    nodes = (
        Node(id=NodeId("a"), handler="output"),
        Node(id=NodeId("b"), handler="output", dependencies=(NodeId("a"),), condition="a.x"),
        Node(id=NodeId("c"), handler="output", dependencies=(NodeId("a"),), for_each="a.x"),
    )

    drawn = draw_graph(Graph(Workflow(name="w", nodes=nodes)), columns=80)

    assert "│ b ? │" in drawn
    assert "│ c ×n │" in drawn  # noqa: RUF001  # the sign for "times" is meant
    assert "runs only when its condition is true" in drawn


def test_a_graph_wider_than_the_terminal_is_listed_by_layer_and_shortened() -> None:
    wide = graph({"start": ""} | {f"node_{i}": "start" for i in range(30)})

    lines = draw_graph(wide, columns=60).splitlines()

    assert lines[0] == "31 nodes in 2 layers"
    assert lines[2] == "1  start"
    assert lines[3] == "2  node_0 ← start   node_1 ← start … 28 more"
    assert all(len(line) <= 60 for line in lines)


def test_a_long_listing_says_how_many_layers_it_omits() -> None:
    chain = graph({"n0": ""} | {f"n{i}": f"n{i - 1}" for i in range(1, 100)})

    lines = list_layers(chain, columns=80).splitlines()

    assert lines[-1] == "  …  and 60 more layers"


def test_mermaid_names_nodes_by_number_and_labels_them_by_id() -> None:
    text = render_mermaid(graph({"a": "", "end": "a"}))

    assert text.splitlines() == [
        "flowchart TD",
        '    n0["a"]',
        '    n1["end"]',
        "    n0 --> n1",
    ]


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ("plain_id", "plain_id"),
        ('say "hi"', "say #34;hi#34;"),
        ("a#b;c", "a#35;b#59;c"),
        ("x[0]{y}", "x#91;0#93;#123;y#125;"),
        ("<b>&", "#60;b#62;#38;"),
        ("größe", "größe"),
    ],
)
def test_a_mermaid_label_escapes_the_special_characters_of_mermaid(id_: str, expected: str) -> None:
    assert escape_label(id_) == expected


def test_a_graph_as_data_is_plain_json() -> None:
    document = build_document(build_graph_view(Graph(workflow({"a": "", "b": "a"}))))

    assert msgspec.json.decode(msgspec.json.encode(document)) == {
        "workflow": "test",
        "nodes": [{"id": "a", "handler": "output"}, {"id": "b", "handler": "output"}],
        "edges": [["a", "b"]],
        "layers": [["a"], ["b"]],
    }


def test_an_image_has_a_box_for_each_node_and_a_text_description() -> None:
    nodes = (
        Node(id=NodeId("a"), handler="input"),
        Node(id=NodeId('<b> & "c"\n'), handler="python", for_each="a.x", dependencies=("a",)),  # type: ignore[arg-type]
        Node(id=NodeId("d"), handler="a_handler_with_a_long_name", condition="a.x > 1"),
    )
    svg = ET.fromstring(render_svg(Graph(Workflow(name="w & <x>", nodes=nodes))))

    groups = list(svg.iter(f"{SVG}g"))
    kinds = [(group.get("class"), len(group.findall(f"{SVG}rect"))) for group in groups]
    assert svg.findtext(f"{SVG}title") == "Workflow w & <x>"
    assert svg.findtext(f"{SVG}desc") == ('3 nodes in 2 layers. a. <b> & "c"\\n after a. d.')
    assert set(kinds) == {("node", 2), ("node builtin", 1), ("node conditional", 1)}
    assert [group.findtext(f"{SVG}title") for group in groups if group.get("class") == "node"] == [
        '<b> & "c"\\n (python); once for each item of a list'
    ]


def test_boxes_of_an_image_hold_their_texts_and_do_not_overlap() -> None:
    edges = {"a": "", "b": "a", "c": "a", "d": "b c", "e": "a d", "a_long_name_in_a_row": "a"}
    svg = ET.fromstring(render_svg(graph(edges)))

    boxes = [
        (float(rect.get("y", 0)), float(rect.get("x", 0)), float(rect.get("width", 0)))
        for rect in svg.iter(f"{SVG}rect")
        if rect.get("class") == "box"
    ]
    texts = [text for text in svg.iter(f"{SVG}text") if text.get("class") == "name"]
    assert len(boxes) == len(texts) == len(edges)
    for (y, x, width), (next_y, next_x, _) in itertools.pairwise(sorted(boxes)):
        assert y < next_y or x + width < next_x
    widths = {text.text: box[2] for text, box in zip(texts, boxes, strict=True)}
    assert all(width >= 9 * len(name or "") for name, width in widths.items())


def test_an_image_draws_each_edge_with_a_tip_at_its_end() -> None:
    svg = ET.fromstring(render_svg(graph({"a": "", "b": "a", "c": "b", "d": "a c"})))

    tips = [path for path in svg.iter(f"{SVG}path") if path.get("class") == "tip"]
    lines = [path for path in svg.iter(f"{SVG}path") if path.get("class") == "edge"]
    assert len(tips) == 4
    assert len(lines) == 6  # the edge from a to d passes two layers
