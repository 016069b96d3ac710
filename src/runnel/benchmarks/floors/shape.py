"""A graph as a floor knows it: who follows, and how many must have ended before."""

from typing import NamedTuple

from runnel.core.ids import DefinitionHash, NodeId
from runnel.core.workflow import Workflow, hash_workflow


class Shape(NamedTuple):
    workflow: str
    definition: DefinitionHash
    children: dict[NodeId, tuple[NodeId, ...]]
    parents: dict[NodeId, tuple[NodeId, ...]]
    counts: dict[NodeId, int]
    first: tuple[NodeId, ...]


def shape_of(workflow: Workflow) -> Shape:
    children: dict[NodeId, list[NodeId]] = {node.id: [] for node in workflow.nodes}
    for node in workflow.nodes:
        for parent in node.dependencies:
            children[parent].append(node.id)
    parents = {node.id: node.dependencies for node in workflow.nodes}
    return Shape(
        workflow=workflow.name,
        definition=hash_workflow(workflow),
        children={parent: tuple(each) for parent, each in children.items()},
        parents=parents,
        counts={node: len(before) for node, before in parents.items()},
        first=tuple(node for node, before in parents.items() if not before),
    )


class Run:
    """One execution: what each node still waits for, and how many have not ended."""

    __slots__ = ("left", "missing")

    def __init__(self, shape: Shape) -> None:
        self.missing = dict(shape.counts)
        self.left = len(shape.counts)

    def settle(self, shape: Shape, node: NodeId) -> list[NodeId]:
        """The nodes that may begin now."""
        ready = []
        missing = self.missing
        for child in shape.children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
        self.left -= 1
        return ready
