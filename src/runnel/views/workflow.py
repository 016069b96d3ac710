"""A graph as data, for programs."""

from runnel.core.graph import CompiledNode, Graph
from runnel.core.values import Json
from runnel.core.workflow import WAIT_FOR_SIGNAL


def graph_document(graph: Graph) -> dict[str, Json]:
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
_PLAIN = frozenset(" _-.,:/()")


def mermaid(graph: Graph) -> str:
    lines = ["flowchart TD"]
    lines += [f"    {_shape(each)}" for each in graph.nodes]
    for each in graph.nodes:
        lines += [f"    n{parent} --> n{each.index}" for parent in each.parents]
    return "\n".join(lines)


def escaped(text: str) -> str:
    return "".join(char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in text)


def _shape(each: CompiledNode) -> str:
    """Conditional nodes are hexagons, maps have double sides, waits for signals are rounded."""
    label = f'"{escaped(each.node.id)}"'
    if each.node.for_each is not None:
        return f"n{each.index}[[{label}]]"
    if each.node.condition is not None:
        return f"n{each.index}{{{{{label}}}}}"
    if each.node.handler == WAIT_FOR_SIGNAL:
        return f"n{each.index}([{label}])"
    return f"n{each.index}[{label}]"
