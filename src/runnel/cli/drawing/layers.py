"""A graph that is too large for a picture: one line per layer, shortened."""

from runnel.cli.words import count
from runnel.core.graph import Graph
from runnel.core.ids import NodeId

LAYERS_MAX = 40
PARENTS_MAX = 3


def list_layers(graph: Graph, *, columns: int) -> str:
    """Every name is followed by its parents where the layer above does not tell them."""
    layers = graph.layers()
    digits = len(str(len(layers)))
    lines = [f"{count(len(graph), 'node')} in {count(len(layers), 'layer')}", ""]
    for number, ids in enumerate(layers[:LAYERS_MAX], start=1):
        room = max(20, columns - digits - 2)
        lines.append(f"{number:>{digits}}  {_names(graph, ids, room)}")
    if len(layers) > LAYERS_MAX:
        lines.append(f"{'…':>{digits}}  and {count(len(layers) - LAYERS_MAX, 'more layer')}")
    return "\n".join(lines)


def _names(graph: Graph, ids: list[NodeId], room: int) -> str:
    """As many as fit, and how many more there are."""
    shown = ""
    for number, id_ in enumerate(ids):
        more = f" … {len(ids) - number:,} more"
        text = ("   " if shown else "") + id_ + _parents(graph, id_)
        is_last = number == len(ids) - 1
        if len(shown) + len(text) + (0 if is_last else len(more)) > room and shown:
            return shown + more
        shown += text
    return shown


def _parents(graph: Graph, id_: NodeId) -> str:
    parents = [graph.nodes[parent].node.id for parent in graph.node(id_).parents]
    if not parents:
        return ""
    more = len(parents) - PARENTS_MAX
    listed = ", ".join(parents[:PARENTS_MAX])
    return f" ← {listed} +{more:,}" if more > 0 else f" ← {listed}"
