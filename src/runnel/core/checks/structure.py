"""The graph of a workflow that may be wrong: what can be started in which order, and what can't."""

from collections import deque
from collections.abc import Iterator, Sequence

from runnel.core.checks.wording import name_hint, quoted
from runnel.core.ids import NodeId
from runnel.core.workflow import Node


class Structure:
    """Nodes by index; unknown, repeated and self dependencies are left out of the edges.

    `order` has parents before children and leaves out every node on or behind a cycle.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.index: dict[NodeId, int] = {}
        for at, node in enumerate(nodes):
            self.index.setdefault(node.id, at)
        self.parents = [self._parents(at, node) for at, node in enumerate(nodes)]
        self.children: list[list[int]] = [[] for _ in nodes]
        for at, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(at)
        self.order = self._order()

    def id(self, at: int) -> str:
        return self.nodes[at].id

    def _parents(self, at: int, node: Node) -> list[int]:
        known = (self.index.get(parent) for parent in dict.fromkeys(node.dependencies))
        return [parent for parent in known if parent is not None and parent != at]

    def _order(self) -> list[int]:
        """Kahn's algorithm."""
        missing = [len(parents) for parents in self.parents]
        queue = deque(at for at, count in enumerate(missing) if not count)
        order = []
        while queue:
            at = queue.popleft()
            order.append(at)
            for child in self.children[at]:
                missing[child] -= 1
                if not missing[child]:
                    queue.append(child)
        return order


def dependency_problems(structure: Structure) -> Iterator[str]:
    for node in structure.nodes:
        seen: set[NodeId] = set()
        for parent in node.dependencies:
            if parent in seen:
                problem = f"the dependency {quoted(parent)} is given twice; keep one"
            elif parent == node.id:
                problem = "it depends on itself; remove that dependency"
            elif parent not in structure.index:
                hint = name_hint(parent, structure.index)
                problem = f"it depends on {quoted(parent)}, but there is no such node{hint}"
            else:
                problem = ""
            seen.add(parent)
            if problem:
                yield f"node {quoted(node.id)}: {problem}"
