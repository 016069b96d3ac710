"""What a rerun takes over from the execution before it, and what it runs again."""

from collections.abc import Iterable, Iterator

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
    """Everything that settled well and stands behind nothing that is run again.

    Run again is what did not complete, what is named in `nodes_to_rerun`, what the newer definition
    `graph` has changed, and all that depends on one of these. Of a map that failed by itself the
    items that completed are kept, if its list must be the same.
    """
    own = _find_nodes_to_run(previous, graph, set(nodes_to_rerun))
    tainted = _find_dependents(graph, own)
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = previous.graph.index.get(node_id, -1)
        if compiled.index not in own and compiled.index not in tainted:
            run = previous.nodes[index]
            is_done = run.state is NodeState.COMPLETED
            detail = "" if is_done or run.reason == str(run.skip) else run.reason
            yield ReusedResult(
                node_id,
                output=run.output if is_done else None,
                skip=None if is_done else run.skip,
                detail=detail,
            )
        elif own.get(compiled.index) and compiled.index not in tainted and is_same_input:
            yield from _list_reused_items(previous, index, node_id)


def _find_nodes_to_run(
    previous: Execution, graph: Graph, nodes_to_rerun: set[NodeId]
) -> dict[int, bool]:
    """Nodes that must run for their own sake; True when what they run is what failed."""
    own: dict[int, bool] = {}
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = previous.graph.index.get(node_id)
        is_known = index is not None and previous.graph.nodes[index].node == compiled.node
        if node_id in nodes_to_rerun or not is_known:
            own[compiled.index] = False
        elif index is not None and previous.nodes[index].state not in _REUSABLE_STATES:
            own[compiled.index] = True
    return own


def _find_dependents(graph: Graph, start: Iterable[int]) -> set[int]:
    """All that depends on one of them, by a worklist: graphs are deep."""
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
