"""The workflows that are measured: their nodes do nothing."""

from collections.abc import Mapping, Sequence
from functools import cache

from runnel.authoring.document import read_document
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow

CHAIN_NODES = 20
FAN_WIDTH = 1_000
# Forty layers of fifty nodes: each has three parents in the layer before it, a few have four.
LAYERS, LAYER_NODES = 40, 50
PARENTS: tuple[int, ...] = (0, 1, 7)
FOURTH_PARENT, FOURTH_PARENTS = 13, 150

_DIAMOND: Mapping[str, Sequence[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@cache
def diamond() -> Workflow:
    """a, then b and c, then d."""
    return _workflow("diamond", _DIAMOND)


@cache
def napping_diamond() -> Workflow:
    """The same, of nodes that take a while: see `handlers.nap`."""
    return _workflow("napping", _DIAMOND, handler="nap")


@cache
def chain() -> Workflow:
    """One node after another."""
    return _workflow("chain", {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(CHAIN_NODES)})


@cache
def fan(width: int = FAN_WIDTH) -> Workflow:
    """One node, `width` behind it, and one behind all of these."""
    middle = [f"b{number}" for number in range(width)]
    return _workflow("fan", {"a": [], **{each: ["a"] for each in middle}, "z": middle})


@cache
def graph() -> Workflow:
    """2,000 nodes and 6,000 edges."""
    edges: dict[str, Sequence[str]] = {}
    for layer in range(LAYERS):
        for number in range(LAYER_NODES):
            offsets = PARENTS
            if 0 < (layer * LAYER_NODES + number) - LAYER_NODES + 1 <= FOURTH_PARENTS:
                offsets = (*PARENTS, FOURTH_PARENT)
            parents = [f"n{layer - 1}_{(number + each) % LAYER_NODES}" for each in offsets]
            edges[f"n{layer}_{number}"] = parents if layer else []
    return _workflow("graph", edges)


@cache
def mapping() -> Workflow:
    """One node for each of the `items` of the input."""
    node: Json = {"id": "each", "handler": "noop", "for_each": "input.items"}
    return read_document({"name": "map", "nodes": [node]}, source="map")


@cache
def waiting() -> Workflow:
    """Waits for the signal `go`, then runs one node."""
    nodes: Json = [
        {"id": "ok", "handler": "wait_for_signal", "config": {"signal": "go"}, "dependencies": []},
        {"id": "after", "handler": "noop", "dependencies": ["ok"]},
    ]
    return read_document({"name": "waiting", "nodes": nodes}, source="waiting")


def _workflow(name: str, edges: Mapping[str, Sequence[str]], *, handler: str = "noop") -> Workflow:
    nodes = [
        {"id": node, "handler": handler, "dependencies": list(parents)}
        for node, parents in edges.items()
    ]
    return read_document({"name": name, "nodes": nodes}, source=name)
