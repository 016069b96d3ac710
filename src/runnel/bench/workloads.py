"""The workloads of the benchmarks.

Each workload submits executions with the public client and measures their time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import TypeAlias

import msgspec

from runnel.bench.deployment import (
    FEED_PAUSE_S,
    BenchmarkDeployment,
    EngineOnlyWork,
    FunctionWork,
    MeasuredWork,
    run_all,
    run_sequentially,
)
from runnel.bench.figures import Figures, name_engine_only, summarize_latency
from runnel.bench.functions import FunctionKind
from runnel.bench.load import measure_steady_load
from runnel.bench.machine import read_cpu_by_role, read_memory_by_role
from runnel.bench.workflows import (
    FAN_WIDTH,
    build_chain,
    build_diamond,
    build_fan,
    build_large_graph,
    build_map,
    build_signal_wait,
)
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.ports.archive import ExecutionFilter

SMALL_MAP_ITEMS = 1_000
POLL_INTERVAL_S = 0.05
START_TIMEOUT_S = 600.0
# The number of submits in flight, so large that one slow submit does not slow down the others.
SUBMIT_BATCH = 500
HISTORIES_READ_MAX = 20


async def measure_diamonds(
    deployment: BenchmarkDeployment, work: MeasuredWork, count: int
) -> Figures:
    """Submits all diamonds at once; measures the time from the first submit to the last end."""
    before = read_cpu_by_role(deployment.pids())
    seconds = await run_all(deployment, work, count)
    used = read_cpu_by_role(deployment.pids())
    return {
        "executions_per_s": count / seconds,
        "nodes_per_s": count * work.node_count / seconds,
        **{
            f"processor_us_{name}": 1e6 * (used_s - before[name]) / count
            for name, used_s in used.items()
        },
    }


async def measure_chains(
    deployment: BenchmarkDeployment, work: MeasuredWork, count: int
) -> Figures:
    """Runs one chain at a time; measures the time per node."""
    seconds = await run_sequentially(deployment, work, count)
    return {
        **summarize_latency("edge", [chain_s / work.node_count for chain_s in seconds]),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": work.node_count * count / sum(seconds),
    }


async def measure_fans(deployment: BenchmarkDeployment, work: MeasuredWork, count: int) -> Figures:
    """Runs one fan at a time: 1 → 1,000 → 1 nodes."""
    seconds = await run_sequentially(deployment, work, count)
    return {
        f"fan_{FAN_WIDTH}_s": median(seconds),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": count * work.node_count / sum(seconds),
    }


async def measure_chain_hops(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Measures engine-only chains as `measure_chains` does, and the time per hop.

    A hop is the time between the commit that queues a node and the commit that queues the next
    node, as recorded in the history.
    """
    figures = await measure_chains(deployment, EngineOnlyWork(build_chain()), count)
    hops = await _measure_hops(deployment, build_chain(), min(count, HISTORIES_READ_MAX))
    return {**figures, **summarize_latency("hop", hops)}


async def measure_large_graphs(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Runs one graph at a time: 2,000 nodes with 6,000 edges."""
    work = EngineOnlyWork(build_large_graph())
    seconds = await run_sequentially(deployment, work, count)
    return {
        "graph_s": median(seconds),
        "engine_only_per_s": count / sum(seconds),
        "engine_only_nodes_per_s": count * work.node_count / sum(seconds),
    }


async def measure_maps(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Measures time per item and memory: runs three maps of 1,000 items, then one map of `count`
    items.
    """
    idle = read_memory_by_role(deployment.pids())
    small_map, large_map = (
        EngineOnlyWork(build_map(), {"items": list(range(items))})
        for items in (SMALL_MAP_ITEMS, count)
    )
    small = await run_sequentially(deployment, small_map, 3)
    [seconds] = await run_sequentially(deployment, large_map, 1)
    costs = median(small) / SMALL_MAP_ITEMS, seconds / count
    figures = {
        f"map_{SMALL_MAP_ITEMS}_us_per_item": 1e6 * costs[0],
        f"map_{count}_us_per_item": 1e6 * costs[1],
        "map_cost_ratio": costs[1] / costs[0],
        "engine_only_nodes_per_s": count / seconds,
    }
    for name, peak in read_memory_by_role(deployment.pids(), is_peak=True).items():
        figures[f"map_peak_mb_{name}"] = peak - idle[name]
    return figures


async def measure_signal_waits(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Measures the memory of waiting executions, and the time from the signals to the last end."""
    await run_all(deployment, EngineOnlyWork(build_diamond()), 1)
    idle = read_memory_by_role(deployment.pids())
    ids = []
    for first in range(0, count, SUBMIT_BATCH):
        batch = range(min(SUBMIT_BATCH, count - first))
        ids += await asyncio.gather(*[deployment.client.submit(build_signal_wait()) for _ in batch])
    await _wait_until_started(deployment)
    held = read_memory_by_role(deployment.pids())
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = deployment.clock.monotonic()
        await asyncio.gather(*[deployment.client.signal(id_, "go") for id_ in ids])
        signalled_s = deployment.clock.monotonic() - started
        seconds = max(await asyncio.gather(*map(ends.wait_until_completed, ids))) - started
    return {
        **{f"waiting_mb_{name}": held[name] - idle[name] for name in idle},
        "signal_s": signalled_s,
        "wake_s": seconds,
        "engine_only_per_s": count / seconds,
        "engine_only_nodes_per_s": count * len(build_signal_wait().nodes) / seconds,
    }


async def _wait_until_started(deployment: BenchmarkDeployment) -> None:
    """Waits until no execution is PENDING.

    All executions then wait for their signal, because start and wait are one commit.
    """
    pending = ExecutionFilter(workflow=build_signal_wait().name, states=(ExecutionState.PENDING,))
    end = deployment.clock.monotonic() + START_TIMEOUT_S
    while any(
        count.number for count in (await deployment.client.count_executions(pending)).values()
    ):
        if deployment.clock.monotonic() > end:
            raise TimeoutError(f"not all executions have started within {START_TIMEOUT_S:g} s")
        await deployment.clock.sleep(POLL_INTERVAL_S)


async def _measure_hops(
    deployment: BenchmarkDeployment, workflow: Workflow, count: int
) -> list[float]:
    hops = []
    async with deployment.watch_completions() as ends:
        for _ in range(count):
            execution_id = await deployment.client.submit(workflow)
            await ends.wait_until_completed(execution_id)
            history = await deployment.client.history(execution_id)
            queued = [entry.at for entry in history if entry.event == "NodeQueued"]
            hops += [after - before for before, after in pairwise(queued)]
    return hops


# The workloads by name.

MeasureDeployment: TypeAlias = Callable[[BenchmarkDeployment, int], Awaitable[Figures]]
MeasureWork: TypeAlias = Callable[[BenchmarkDeployment, MeasuredWork, int], Awaitable[Figures]]


class BenchmarkWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with its default count and repetitions; `count_unit` is the unit of `count`.

    `functions` measures the same graph of decorated functions. A workload without it is engine
    only: its nodes do nothing.
    """

    description: str
    engine_only: MeasureDeployment
    functions: MeasureWork | None = None
    count: int
    count_unit: str = "executions"
    repetitions: int = 1


STANDARD_WORKLOADS: Mapping[str, BenchmarkWorkload] = {
    "diamond": BenchmarkWorkload(
        description="a, then b and c, then d: all at once, from the first submit to the last end",
        engine_only=lambda deployment, count: measure_diamonds(
            deployment, EngineOnlyWork(build_diamond()), count
        ),
        functions=measure_diamonds,
        count=2_000,
        repetitions=3,
    ),
    "chain": BenchmarkWorkload(
        description="20 nodes in a row, one execution at a time: the time per edge",
        engine_only=measure_chain_hops,
        functions=measure_chains,
        count=100,
    ),
    "fan": BenchmarkWorkload(
        description="1 node, 1,000 after it, 1 after these, one execution at a time",
        engine_only=lambda deployment, count: measure_fans(
            deployment, EngineOnlyWork(build_fan()), count
        ),
        functions=measure_fans,
        count=5,
    ),
    "graph": BenchmarkWorkload(
        description="engine only: 2,000 nodes with 6,000 edges, one execution at a time",
        engine_only=measure_large_graphs,
        count=3,
    ),
    "map": BenchmarkWorkload(
        description="engine only: a map over a list: the time per item, compared with 1,000 items",
        engine_only=measure_maps,
        count=100_000,
        count_unit="items",
    ),
    "waiting": BenchmarkWorkload(
        description=(
            "engine only: executions that wait for a signal: their memory, and the time until all "
            "have ended"
        ),
        engine_only=measure_signal_waits,
        count=10_000,
    ),
    "load": BenchmarkWorkload(
        description="engine only: diamonds at 70 % of the maximum rate: latency, growth of memory",
        engine_only=measure_steady_load,
        count=60,
        count_unit="seconds",
    ),
}


async def measure_workload(
    name: str,
    deployment: BenchmarkDeployment,
    count: int,
    *,
    functions: FunctionKind,
    settle: Callable[[], Awaitable[None]],
) -> Figures:
    """Measures decorated functions if the workload has them, and then the engine only.

    `settle` waits for background work of earlier executions. If functions were measured, the names
    of all engine-only figures begin with `engine_only`.
    """
    workload = STANDARD_WORKLOADS[name]
    await settle()
    if workload.functions is None:
        return await workload.engine_only(deployment, count)
    figures = await workload.functions(deployment, FunctionWork(functions, name), count)
    await settle()
    engine_only = name_engine_only(await workload.engine_only(deployment, count))
    return figures | {
        name if name.startswith("engine_only") else f"engine_only_{name}": value
        for name, value in engine_only.items()
    }
