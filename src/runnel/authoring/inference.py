"""Dependencies that are not written down: the nodes that a node's templates name."""

from collections.abc import Mapping, Sequence

import msgspec

from runnel.core.checks.references import compiled_fields
from runnel.core.ids import NodeId
from runnel.core.templates import RESERVED, TemplateSyntaxError
from runnel.core.workflow import Node


def with_inferred(nodes: Sequence[Node], *, unless: frozenset[NodeId]) -> tuple[Node, ...]:
    """Gives each node its inferred dependencies; those in `unless` state theirs."""
    positions = positions_of(nodes)
    return tuple(
        node if node.id in unless else _replaced(node, infer_dependencies(node, positions))
        for node in nodes
    )


def positions_of(nodes: Sequence[Node]) -> dict[NodeId, int]:
    return {node.id: position for position, node in enumerate(nodes)}


def infer_dependencies(node: Node, positions: Mapping[NodeId, int]) -> tuple[NodeId, ...]:
    """In the order of the document; a template that is not one is left to validation."""
    found: set[NodeId] = set()
    for _, compiled in compiled_fields(node):
        if not isinstance(compiled, TemplateSyntaxError):
            found.update(NodeId(reference.root) for reference in compiled.references)
    known = (name for name in found if name in positions and name not in RESERVED)
    return tuple(sorted((name for name in known if name != node.id), key=positions.__getitem__))


def _replaced(node: Node, dependencies: tuple[NodeId, ...]) -> Node:
    return msgspec.structs.replace(node, dependencies=dependencies) if dependencies else node
