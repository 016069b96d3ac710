"""A graph as data, for programs."""

from runnel.core.graph import CompiledNode, Graph
from runnel.core.values import Json
from runnel.core.workflow import WAIT_FOR_SIGNAL


def build_graph_document(graph: Graph) -> dict[str, Json]:
    return {
        "workflow": graph.workflow.name,
        "nodes": [{"id": each.node.id, "handler": each.node.handler} for each in graph.nodes],
        "edges": [
            [graph.nodes[parent].node.id, each.node.id]
            for each in graph.nodes
            for parent in each.parents
        ],
        "layers": graph.layers(),
    }


# Mermaid text: nodes are numbered, so that any id is only a label.

# Everything else is written as an entity: quotes, brackets, `#`, `<` and line ends mean something.
_UNESCAPED_CHARS = frozenset(" _-.,:/()")


def render_mermaid(graph: Graph) -> str:
    lines = ["flowchart TD"]
    lines += [f"    {_render_node(each)}" for each in graph.nodes]
    for each in graph.nodes:
        lines += [f"    n{parent} --> n{each.index}" for parent in each.parents]
    return "\n".join(lines)


def escape_label(text: str) -> str:
    return "".join(
        char if char.isalnum() or char in _UNESCAPED_CHARS else f"#{ord(char)};" for char in text
    )


def _render_node(compiled: CompiledNode) -> str:
    """Conditional nodes are hexagons, maps have double sides, waits for signals are rounded."""
    label = f'"{escape_label(compiled.node.id)}"'
    if compiled.node.for_each is not None:
        return f"n{compiled.index}[[{label}]]"
    if compiled.node.condition is not None:
        return f"n{compiled.index}{{{{{label}}}}}"
    if compiled.node.handler == WAIT_FOR_SIGNAL:
        return f"n{compiled.index}([{label}])"
    return f"n{compiled.index}[{label}]"
