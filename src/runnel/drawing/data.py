"""A graph as data, for programs."""

from runnel.core.graph import Graph
from runnel.core.json_types import Json


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
