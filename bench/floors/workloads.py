"""The workloads with a floor, and how a floor runs each of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from runnel.bench.workflows import build_chain, build_diamond, build_fan, build_large_graph
from runnel.core.workflow import Workflow
from runnel.ports.clock import Clock


class Floor(Protocol):
    async def execute(self) -> None:
        """Submits one execution and waits for its end."""


async def execute_at_once(floor: Floor, count: int, clock: Clock) -> float:
    """Runs all executions concurrently and returns the rate per second."""
    started = clock.monotonic()
    await asyncio.gather(*[floor.execute() for _ in range(count)])
    return count / (clock.monotonic() - started)


async def execute_in_turn(floor: Floor, count: int, clock: Clock) -> float:
    """Runs executions one after the other and returns the rate per second."""
    started = clock.monotonic()
    for _ in range(count):
        await floor.execute()
    return count / (clock.monotonic() - started)


Execute: TypeAlias = Callable[[Floor, int, Clock], Awaitable[float]]


class FloorWorkload(NamedTuple):
    """A workload; `execute` runs it like the engine's workload of the same name."""

    workflow: Callable[[], Workflow]
    execute: Execute


WORKLOADS: Mapping[str, FloorWorkload] = {
    "diamond": FloorWorkload(build_diamond, execute_at_once),
    "chain": FloorWorkload(build_chain, execute_in_turn),
    "fan": FloorWorkload(build_fan, execute_in_turn),
    "graph": FloorWorkload(build_large_graph, execute_in_turn),
}
