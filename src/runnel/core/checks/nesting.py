"""All child workflows of a workflow, each once, and how much they are together."""

from collections.abc import Iterator

import msgspec

from runnel.core.checks.wording import quoted
from runnel.core.workflow import Workflow

CHILD_DEPTH_MAX = 20


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    """`workflows` with the words that lead to each; `nodes` counts a child each time it is used."""

    workflows: list[tuple[str, Workflow]]
    nodes: int
    depth: int


def unfold(root: Workflow) -> Nested:
    """A child used twice is one object, so that 2^20 uses in 20 levels are counted, not walked.

    What is nested deeper than allowed is counted as well, but not among the workflows.
    """
    extents: dict[int, tuple[int, int]] = {}
    workflows = [("", root)]
    seen = {id(root)}
    work = [("", root, _children(root))]
    while work:
        path, workflow, children = work[-1]
        step = next(children, None)
        if step is None:
            work.pop()
            extents[id(workflow)] = _extent(workflow, extents)
        elif id(step[1]) not in seen:
            seen.add(id(step[1]))
            if len(work) <= CHILD_DEPTH_MAX:
                path += f"node {quoted(step[0])} → child: "
                workflows.append((path, step[1]))
            work.append((path, step[1], _children(step[1])))
    nodes, depth = extents[id(root)]
    return Nested(workflows=workflows, nodes=nodes, depth=depth)


def _children(workflow: Workflow) -> Iterator[tuple[str, Workflow]]:
    return ((node.id, node.child) for node in workflow.nodes if node.child is not None)


def _extent(workflow: Workflow, extents: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Nodes and depth, from those of its children."""
    nodes, depth = len(workflow.nodes), 0
    for _, child in _children(workflow):
        nodes += extents[id(child)][0]
        depth = max(depth, extents[id(child)][1] + 1)
    return nodes, depth
