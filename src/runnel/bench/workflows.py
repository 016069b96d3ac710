"""The engine-only workflows and their handlers. The handlers do nothing.

A worker loads the handlers with `--app runnel.bench.workflows:handlers`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache

from runnel.authoring.context import Context
from runnel.authoring.documents import read_document
from runnel.authoring.registry import HandlerRegistry
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock

NAP_S = 0.05
CHAIN_NODES = 20
FAN_WIDTH = 1_000
# The large graph has forty layers of fifty nodes. Each node has three parents in the previous
# layer; a few nodes have four.
LAYERS, LAYER_NODES = 40, 50
PARENT_OFFSETS: tuple[int, ...] = (0, 1, 7)
FOURTH_PARENT_OFFSET, FOURTH_PARENT_NODES = 13, 150

_DIAMOND_EDGES: Mapping[str, Sequence[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


async def noop(_config: Json, _ctx: Context) -> None:
    return None


async def nap(_config: Json, _ctx: Context) -> None:
    """Sleeps for NAP_S seconds, so that the handler is running when its worker is killed."""
    await RealClock().wait(asyncio.Event(), NAP_S)


handlers = HandlerRegistry()
handlers.register("noop", noop)
handlers.register("nap", nap)


@cache
def build_diamond() -> Workflow:
    """Returns a workflow of four nodes: a, then b and c, then d."""
    return _build_workflow("diamond", _DIAMOND_EDGES)


@cache
def build_napping_diamond() -> Workflow:
    """Returns a diamond of nodes that take NAP_S seconds each."""
    return _build_workflow("napping", _DIAMOND_EDGES, handler="nap")


@cache
def build_chain() -> Workflow:
    """Returns a workflow of CHAIN_NODES nodes in a row."""
    return _build_workflow(
        "chain", {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(CHAIN_NODES)}
    )


@cache
def build_fan(width: int = FAN_WIDTH) -> Workflow:
    """Returns a workflow of one node, `width` nodes after it, and one node after all of these."""
    middle = [f"b{number}" for number in range(width)]
    return _build_workflow("fan", {"a": [], **{node: ["a"] for node in middle}, "z": middle})


@cache
def build_large_graph() -> Workflow:
    """Returns a workflow of 2,000 nodes with 6,000 edges."""
    edges: dict[str, Sequence[str]] = {}
    for layer in range(LAYERS):
        for number in range(LAYER_NODES):
            offsets = PARENT_OFFSETS
            if 0 < (layer * LAYER_NODES + number) - LAYER_NODES + 1 <= FOURTH_PARENT_NODES:
                offsets = (*PARENT_OFFSETS, FOURTH_PARENT_OFFSET)
            parents = [f"n{layer - 1}_{(number + offset) % LAYER_NODES}" for offset in offsets]
            edges[f"n{layer}_{number}"] = parents if layer else []
    return _build_workflow("graph", edges)


@cache
def build_map() -> Workflow:
    """Returns a workflow with a map over the list `items` of the input."""
    node: Json = {"id": "each", "handler": "noop", "for_each": "input.items"}
    return read_document({"name": "map", "nodes": [node]}, source="map")


@cache
def build_signal_wait() -> Workflow:
    """Returns a workflow that waits for the signal `go`, then runs one node."""
    nodes: Json = [
        {"id": "ok", "handler": "wait_for_signal", "config": {"signal": "go"}, "dependencies": []},
        {"id": "after", "handler": "noop", "dependencies": ["ok"]},
    ]
    return read_document({"name": "waiting", "nodes": nodes}, source="waiting")


def _build_workflow(
    name: str, edges: Mapping[str, Sequence[str]], *, handler: str = "noop"
) -> Workflow:
    nodes = [
        {"id": node, "handler": handler, "dependencies": list(parents)}
        for node, parents in edges.items()
    ]
    return read_document({"name": name, "nodes": nodes}, source=name)
