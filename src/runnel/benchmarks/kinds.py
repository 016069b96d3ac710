"""The workloads by name: what each runs, how often, and whether a floor can do the same."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import msgspec

from runnel.benchmarks.figures import Figures
from runnel.benchmarks.floors.timing import Floor, at_once, in_turn
from runnel.benchmarks.load import steady_load
from runnel.benchmarks.site import Site
from runnel.benchmarks.workflows import chain, diamond, fan, graph
from runnel.benchmarks.workloads import chains, diamonds, fans, graphs, maps, waits
from runnel.core.workflow import Workflow
from runnel.ports.clock import Clock

RunOnSite: TypeAlias = Callable[[Site, int], Awaitable[Figures]]
RunFloor: TypeAlias = Callable[[Floor, int, Clock], Awaitable[float]]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`counted` says what `count` is; `workflow` and `floor` are there if there is a floor."""

    about: str
    run: RunOnSite
    count: int
    counted: str = "executions"
    repetitions: int = 1
    workflow: Callable[[], Workflow] | None = None
    floor: RunFloor = at_once


KINDS: Mapping[str, Kind] = {
    "diamond": Kind(
        about="a, then b and c, then d: all at once, from the first submit to the last end",
        run=diamonds,
        count=2_000,
        repetitions=3,
        workflow=diamond,
    ),
    "chain": Kind(
        about="20 nodes in a row, one execution at a time: the time of an edge",
        run=chains,
        count=100,
        workflow=chain,
        floor=in_turn,
    ),
    "fan": Kind(
        about="1 node, 1,000 behind it, 1 behind these, one execution at a time",
        run=fans,
        count=5,
        workflow=fan,
        floor=in_turn,
    ),
    "graph": Kind(
        about="2,000 nodes with 6,000 edges, one execution at a time",
        run=graphs,
        count=3,
        workflow=graph,
        floor=in_turn,
    ),
    "map": Kind(
        about="one node for each item of a list: what an item costs, against a list of 1,000",
        run=maps,
        count=100_000,
        counted="items",
    ),
    "waiting": Kind(
        about="executions that wait for a signal: their memory, and the time until all are woken",
        run=waits,
        count=10_000,
    ),
    "load": Kind(
        about="diamonds at 70 % of the maximum: how long each takes, and whether memory grows",
        run=steady_load,
        count=60,
        counted="seconds",
    ),
}
