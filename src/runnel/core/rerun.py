"""Selects the results that a rerun reuses from the previous execution."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.states import NodeState
from runnel.core.workflow import ReusedResult

_REUSABLE_STATES = frozenset({NodeState.COMPLETED, NodeState.SKIPPED})


def select_reused_results(
    previous: Execution,
    graph: Graph,
    *,
    nodes_to_rerun: Iterable[NodeId] = (),
    is_same_input: bool = True,
) -> Iterator[ReusedResult]:
    """Yields the result of every node that does not run again.

    A node runs again if it neither completed nor was skipped, is in `nodes_to_rerun`, or changed in
    the newer definition `graph`. All nodes that depend on such a node run again too. If a map
    itself failed, the results of its completed items are reused, provided that the map's list is
    the same.
    """
    rerun_causes = _find_nodes_to_run(previous, graph, set(nodes_to_rerun))
    tainted = _find_dependents(graph, rerun_causes)
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = previous.graph.index.get(node_id, -1)
        if compiled.index not in rerun_causes and compiled.index not in tainted:
            run = previous.nodes[index]
            is_done = run.state is NodeState.COMPLETED
            detail = "" if is_done or run.reason == str(run.skip) else run.reason
            yield ReusedResult(
                node_id,
                output=run.output if is_done else None,
                skip=None if is_done else run.skip,
                detail=detail,
            )
        elif rerun_causes.get(compiled.index) and compiled.index not in tainted and is_same_input:
            yield from _list_reused_items(previous, index, node_id)


def _find_nodes_to_run(
    previous: Execution, graph: Graph, nodes_to_rerun: set[NodeId]
) -> dict[int, bool]:
    """Returns the nodes that run again for a reason of their own, not because of a dependency.

    The value of a node is True if the node is unchanged and did not complete.
    """
    rerun_causes: dict[int, bool] = {}
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = previous.graph.index.get(node_id)
        is_known = index is not None and previous.graph.nodes[index].node == compiled.node
        if node_id in nodes_to_rerun or not is_known:
            rerun_causes[compiled.index] = False
        elif index is not None and previous.nodes[index].state not in _REUSABLE_STATES:
            rerun_causes[compiled.index] = True
    return rerun_causes


def _find_dependents(graph: Graph, start: Iterable[int]) -> set[int]:
    """Returns all nodes that depend on one of the `start` nodes.

    Uses a worklist instead of recursion, because graphs may be deep.
    """
    dependents: set[int] = set()
    unvisited = list(start)
    while unvisited:
        for child in graph.nodes[unvisited.pop()].children:
            if child not in dependents:
                dependents.add(child)
                unvisited.append(child)
    return dependents


def _list_reused_items(previous: Execution, index: int, node_id: NodeId) -> Iterator[ReusedResult]:
    map_run = previous.maps.get(index)
    if map_run is None:
        return
    for item, output in enumerate(map_run.results):
        if output is not None:
            yield ReusedResult(node_id, item, output=output)


# A clean-up node may undo what completed nodes did, for example refund a payment. A rerun that
# reuses the payment would then deliver what nobody has paid for.


class UndoneResults(NamedTuple):
    """Completed nodes (`results`) whose effect the clean-up nodes that ran may have undone."""

    clean_up: tuple[str, ...]
    results: tuple[str, ...]


def find_undone_results(
    parents: Mapping[str, Sequence[str]],
    *,
    clean_up: Iterable[str],
    completed: Container[str],
    nodes_to_rerun: Iterable[str] = (),
) -> UndoneResults | None:
    """Returns the results that a rerun reuses although clean-up may have undone them, or None.

    `parents` has the dependencies of every node, `clean_up` the clean-up nodes whose code ran. Only
    that code knows what it undoes, so the result is a possibility.
    """
    children: dict[str, list[str]] = {node_id: [] for node_id in parents}
    for node_id, own_parents in parents.items():
        for parent in own_parents:
            children[parent].append(node_id)
    ran = tuple(clean_up)
    rerun = _find_reachable(nodes_to_rerun, children)
    undone = _find_reachable(ran, parents).difference(ran, rerun)
    results = tuple(node_id for node_id in parents if node_id in undone and node_id in completed)
    return UndoneResults(ran, results) if results else None


def _find_reachable(start: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """Returns the `start` nodes and all nodes that the edges lead to."""
    reached = set(start)
    unvisited = list(reached)
    while unvisited:
        for node_id in edges.get(unvisited.pop(), ()):
            if node_id not in reached:
                reached.add(node_id)
                unvisited.append(node_id)
    return reached
