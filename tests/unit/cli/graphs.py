"""Workflows for the tests of the command line, written as edges."""

from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.workflow import Node, Workflow


def workflow(edges: dict[str, str], **fields: object) -> Workflow:
    """Returns a workflow from a map of nodes to parents: `{"a": "", "b": "a", "c": "a b"}`."""
    nodes = tuple(
        Node(
            id=NodeId(name),
            handler="output",
            dependencies=tuple(NodeId(parent) for parent in parents.split()),
        )
        for name, parents in edges.items()
    )
    return Workflow(name="test", nodes=nodes, **fields)  # type: ignore[arg-type]  # test data


def graph(edges: dict[str, str]) -> Graph:
    return Graph(workflow(edges))
