"""Analyses the structure of a workflow that may be invalid: dependencies, child workflows,
ancestors, cycles.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from runnel.core.graph import sort_topologically
from runnel.core.ids import NodeId
from runnel.core.message_text import format_names, quote_name, shorten, suggest_or_list_names
from runnel.core.workflow import Node, Workflow


class DependencyGraph:
    """The dependencies of a workflow that may be invalid, by node index.

    Unknown, repeated and self dependencies are left out.

    `order` lists parents before children, and omits every node on or after a cycle.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.index: dict[NodeId, int] = {}
        for index, node in enumerate(nodes):
            self.index.setdefault(node.id, index)
        self.parents = [self._parents(index, node) for index, node in enumerate(nodes)]
        self.children: list[list[int]] = [[] for _ in nodes]
        for index, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(index)
        counts = [len(parents) for parents in self.parents]
        self.order = sort_topologically(self.children, counts)

    def id(self, index: int) -> str:
        return self.nodes[index].id

    def _parents(self, index: int, node: Node) -> list[int]:
        parent_indexes = (self.index.get(parent) for parent in dict.fromkeys(node.dependencies))
        return [parent for parent in parent_indexes if parent is not None and parent != index]


def find_dependency_problems(structure: DependencyGraph) -> Iterator[str]:
    for node in structure.nodes:
        seen: set[NodeId] = set()
        for parent in node.dependencies:
            if parent in seen:
                problem = f"the dependency {quote_name(parent)} is given twice; keep one"
            elif parent == node.id:
                problem = "the node depends on itself; remove that dependency"
            elif parent not in structure.index:
                hint = suggest_or_list_names(parent, structure.index)
                problem = f"it depends on {quote_name(parent)}, but there is no such node{hint}"
            else:
                problem = ""
            seen.add(parent)
            if problem:
                yield f"node {quote_name(node.id)}: {problem}"


# -- child workflows, each once, and their size together ------------------------------------

CHILD_DEPTH_MAX = 20


class NestedWorkflows(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow and its nested child workflows.

    `workflows` pairs each workflow with the prefix for messages about its problems.

    `nodes` counts the nodes of a child each time the child is used.
    """

    workflows: list[tuple[str, Workflow]]
    nodes: int
    depth: int


def collect_nested_workflows(root: Workflow) -> NestedWorkflows:
    """Collects each nested child workflow once, and computes the total number of nodes and the
    depth.

    A child that is used twice is one object, which is visited once. Therefore 2^20 uses in 20
    levels take little time. Workflows nested deeper than allowed are counted but not returned.
    """
    extents: dict[int, tuple[int, int]] = {}
    workflows = [("", root)]
    seen = {id(root)}
    work = [("", root, _list_children(root))]
    while work:
        path, workflow, children = work[-1]
        step = next(children, None)
        if step is None:
            work.pop()
            extents[id(workflow)] = _measure_extent(workflow, extents)
        elif id(step[1]) not in seen:
            seen.add(id(step[1]))
            if len(work) <= CHILD_DEPTH_MAX:
                path += f"node {quote_name(step[0])} → child: "
                workflows.append((path, step[1]))
            work.append((path, step[1], _list_children(step[1])))
    nodes, depth = extents[id(root)]
    return NestedWorkflows(workflows=workflows, nodes=nodes, depth=depth)


def _list_children(workflow: Workflow) -> Iterator[tuple[str, Workflow]]:
    return ((node.id, node.child) for node in workflow.nodes if node.child is not None)


def _measure_extent(workflow: Workflow, extents: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Returns the number of nodes and the depth of a workflow, computed from those of its
    children.
    """
    nodes, depth = len(workflow.nodes), 0
    for _, child in _list_children(workflow):
        nodes += extents[id(child)][0]
        depth = max(depth, extents[id(child)][1] + 1)
    return nodes, depth


# -- ancestors: whether one node is upstream of another, for many pairs at once ------------

# The number of targets in one pass. Each target takes one bit per node: 100,000 nodes take at most
# 25 MB.
TARGETS_PER_BATCH = 2_048


def find_not_upstream(
    structure: DependencyGraph, pairs: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yields the pairs (node, target) whose target is not an ancestor of the node.

    Skips nodes on or after a cycle, because they have no place in the order. One pass over the
    relevant part of the order checks a whole batch of targets. Therefore 100,000 nodes with a
    distant reference each take seconds. A separate search for each reference would take hours.
    """
    positions = {index: position for position, index in enumerate(structure.order)}
    nodes_by_target: dict[int, list[int]] = {}
    for node, target in pairs:
        if node in positions and target in positions:
            nodes_by_target.setdefault(target, []).append(node)
    targets = sorted(nodes_by_target, key=positions.__getitem__)
    for start in range(0, len(targets), TARGETS_PER_BATCH):
        batch = targets[start : start + TARGETS_PER_BATCH]
        last = max(positions[node] for target in batch for node in nodes_by_target[target])
        upstream_bits = _mark_upstream_targets(
            structure, batch, structure.order[positions[batch[0]] : last + 1]
        )
        for bit, target in enumerate(batch):
            for node in nodes_by_target[target]:
                if not upstream_bits.get(node, 0) >> bit & 1:
                    yield node, target


def _mark_upstream_targets(
    structure: DependencyGraph, batch: list[int], order: list[int]
) -> dict[int, int]:
    """Returns, for each node, one bit for each target of the batch that is the node itself or
    upstream of it.
    """
    upstream_bits = {target: 1 << bit for bit, target in enumerate(batch)}
    for index in order:
        bits = upstream_bits.get(index, 0)
        for parent in structure.parents[index]:
            bits |= upstream_bits.get(parent, 0)
        if bits:
            upstream_bits[index] = bits
    return upstream_bits


# -- cycles, and the nodes that can never start because of them ----------------------------

CYCLES_SHOWN_MAX = 10
PATH_NODES_SHOWN_MAX = 12


def find_cycle_problems(structure: DependencyGraph) -> Iterator[str]:
    """Yields one cycle for each strongly connected component, and then the nodes that depend on a
    cycle.
    """
    if len(structure.order) == len(structure.nodes):
        return
    components = sorted(
        (component for component in _find_components(structure) if len(component) > 1), key=min
    )
    for component in components[:CYCLES_SHOWN_MAX]:
        yield _format_cycle(structure, _shortest_cycle(structure, component))
    if len(components) > CYCLES_SHOWN_MAX:
        yield (
            f"cycle: {len(components) - CYCLES_SHOWN_MAX:,} more cycles exist; first remove "
            "the cycles above"
        )
    if all(node.dependencies for node in structure.nodes):
        yield (
            "no root: every node waits for another one; expected at least one node without "
            "dependencies, which starts first"
        )
    explained = {index for component in components for index in component}.union(structure.order)
    unreachable = [
        structure.id(index) for index in range(len(structure.nodes)) if index not in explained
    ]
    if unreachable:
        verb = "it depends" if len(unreachable) == 1 else "they depend"
        yield f"unreachable: {format_names(unreachable)} can never start, because {verb} on a cycle"


def _format_cycle(structure: DependencyGraph, cycle: Sequence[int]) -> str:
    names = [shorten(structure.id(at)) for at in (*cycle, cycle[0])]
    if len(names) > PATH_NODES_SHOWN_MAX:
        hidden_count = len(names) - PATH_NODES_SHOWN_MAX
        half = PATH_NODES_SHOWN_MAX // 2
        names = [*names[:half], f"… ({hidden_count:,} more) …", *names[-half:]]
    return f"cycle: {' → '.join(names)}; remove one of these dependencies"


def _shortest_cycle(structure: DependencyGraph, component: Sequence[int]) -> list[int]:
    """Returns the shortest cycle through the component's first node, in the order of execution.

    There is always a cycle through this node, because a path leads from each node of a component to
    every other.
    """
    first = min(component)
    inside = set(component)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while True:
        at = queue.popleft()
        for child in structure.children[at]:
            if child == first:
                return _trace_path(came_from, first=first, last=at)
            if child in inside and child not in came_from:
                came_from[child] = at
                queue.append(child)


def _trace_path(came_from: dict[int, int], *, first: int, last: int) -> list[int]:
    path = [last]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return path[::-1]


def _find_components(structure: DependencyGraph) -> Iterator[list[int]]:
    """Yields the strongly connected components among the nodes that `order` omits."""
    search = _ComponentSearch(structure.children)
    ordered = set(structure.order)
    for start in range(len(structure.nodes)):
        if start not in ordered and start not in search.number:
            yield from search.find_components(start)


class _ComponentSearch:
    """Finds strongly connected components by Tarjan's algorithm.

    The search uses its own stack, because a cycle may be longer than Python's stack allows.
    """

    def __init__(self, children: Sequence[Sequence[int]]) -> None:
        self.number: dict[int, int] = {}
        self._children = children
        self._low: dict[int, int] = {}
        self._open: list[int] = []
        self._is_open: set[int] = set()
        self._work: list[tuple[int, Iterator[int]]] = []

    def find_components(self, start: int) -> Iterator[list[int]]:
        self._enter(start)
        while self._work:
            index, children = self._work[-1]
            child = next(children, None)
            if child is None:
                yield from self._leave(index)
            elif child not in self.number:
                self._enter(child)
            elif child in self._is_open:
                self._low[index] = min(self._low[index], self.number[child])

    def _enter(self, index: int) -> None:
        self.number[index] = self._low[index] = len(self.number)
        self._open.append(index)
        self._is_open.add(index)
        self._work.append((index, iter(self._children[index])))

    def _leave(self, index: int) -> Iterator[list[int]]:
        self._work.pop()
        if self._work:
            parent = self._work[-1][0]
            self._low[parent] = min(self._low[parent], self._low[index])
        if self._low[index] == self.number[index]:
            yield self._pop_component(index)

    def _pop_component(self, index: int) -> list[int]:
        component: list[int] = []
        while not component or component[-1] != index:
            component.append(self._open.pop())
        self._is_open.difference_update(component)
        return component
