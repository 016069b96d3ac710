"""What a rerun takes over from the execution before it, and what it runs again."""

from collections.abc import Iterable, Iterator

from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.states import NodeState
from runnel.core.workflow import Taken

_KEPT = frozenset({NodeState.COMPLETED, NodeState.SKIPPED})


def take(
    former: Execution, graph: Graph, *, again: Iterable[NodeId] = (), is_same_input: bool = True
) -> Iterator[Taken]:
    """Everything that settled well and stands behind nothing that is run again.

    Run again is what did not complete, what is named in `again`, what the newer definition
    `graph` has changed, and all that depends on one of these. Of a map that failed by itself the
    items that completed are kept, if its list must be the same.
    """
    own = _own(former, graph, set(again))
    tainted = _behind(graph, own)
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = former.graph.index.get(node_id, -1)
        if compiled.index not in own and compiled.index not in tainted:
            run = former.nodes[index]
            is_done = run.state is NodeState.COMPLETED
            detail = "" if is_done or run.reason == str(run.skip) else run.reason
            yield Taken(
                node_id,
                output=run.output if is_done else None,
                skip=None if is_done else run.skip,
                detail=detail,
            )
        elif own.get(compiled.index) and compiled.index not in tainted and is_same_input:
            yield from _items(former, index, node_id)


def _own(former: Execution, graph: Graph, again: set[NodeId]) -> dict[int, bool]:
    """Nodes that must run for their own sake; True when what they run is what failed."""
    own: dict[int, bool] = {}
    for compiled in graph.nodes:
        node_id = compiled.node.id
        index = former.graph.index.get(node_id)
        is_known = index is not None and former.graph.nodes[index].node == compiled.node
        if node_id in again or not is_known:
            own[compiled.index] = False
        elif index is not None and former.nodes[index].state not in _KEPT:
            own[compiled.index] = True
    return own


def _behind(graph: Graph, own: Iterable[int]) -> set[int]:
    """All that depends on one of them, by a worklist: graphs are deep."""
    found: set[int] = set()
    rest = list(own)
    while rest:
        for child in graph.nodes[rest.pop()].children:
            if child not in found:
                found.add(child)
                rest.append(child)
    return found


def _items(former: Execution, index: int, node_id: NodeId) -> Iterator[Taken]:
    found = former.maps.get(index)
    if found is None:
        return
    for item, output in enumerate(found.results):
        if output is not None:
            yield Taken(node_id, item, output=output)
