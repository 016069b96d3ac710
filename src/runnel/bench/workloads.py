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
    CompletionWaiter,
    run_all,
    run_one,
    run_sequentially,
)
from runnel.bench.figures import Figures, compute_percentile, summarize_latency
from runnel.bench.machine import read_cpu_s, read_peak_mb, read_resident_mb
from runnel.bench.workflows import (
    CHAIN_NODES,
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


async def measure_diamonds(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Submits all diamonds at once; measures the time from the first submit to the last end."""
    before = _read_cpu_by_role(deployment)
    seconds = await run_all(deployment, build_diamond(), count)
    used = {name: used_s - before[name] for name, used_s in _read_cpu_by_role(deployment).items()}
    return {
        "executions_per_s": count / seconds,
        "nodes_per_s": count * len(build_diamond().nodes) / seconds,
        **{f"processor_us_{name}": 1e6 * used_s / count for name, used_s in used.items()},
    }


async def measure_chains(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Runs one chain at a time; measures the time per node and the time per hop.

    A hop is the time between the commit that queues a node and the commit that queues the next
    node, as recorded in the history.
    """
    seconds = await run_sequentially(deployment, build_chain(), count)
    hops = await _measure_hops(deployment, build_chain(), min(count, HISTORIES_READ_MAX))
    return {
        **summarize_latency("edge", [chain_s / CHAIN_NODES for chain_s in seconds]),
        **summarize_latency("hop", hops),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": CHAIN_NODES * count / sum(seconds),
    }


async def measure_fans(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Runs one fan at a time: 1 → 1,000 → 1 nodes."""
    seconds = await run_sequentially(deployment, build_fan(), count)
    return {
        f"fan_{FAN_WIDTH}_s": median(seconds),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": count * (FAN_WIDTH + 2) / sum(seconds),
    }


async def measure_large_graphs(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Runs one graph at a time: 2,000 nodes with 6,000 edges."""
    seconds = await run_sequentially(deployment, build_large_graph(), count)
    return {
        "graph_s": median(seconds),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": count * len(build_large_graph().nodes) / sum(seconds),
    }


async def measure_maps(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Measures time per item and memory: runs three maps of 1,000 items, then one map of `count`
    items.
    """
    idle = _read_memory(deployment)
    small = [
        await run_one(deployment, build_map(), {"items": list(range(SMALL_MAP_ITEMS))})
        for _ in range(3)
    ]
    seconds = await run_one(deployment, build_map(), {"items": list(range(count))})
    costs = median(small) / SMALL_MAP_ITEMS, seconds / count
    figures = {
        f"map_{SMALL_MAP_ITEMS}_us_per_item": 1e6 * costs[0],
        f"map_{count}_us_per_item": 1e6 * costs[1],
        "map_cost_ratio": costs[1] / costs[0],
        "nodes_per_s": count / seconds,
    }
    for name, peak in _read_memory(deployment, is_peak=True).items():
        figures[f"map_peak_mb_{name}"] = peak - idle[name]
    return figures


async def measure_signal_waits(deployment: BenchmarkDeployment, count: int) -> Figures:
    """Measures the memory of waiting executions, and the time from the signals to the last end."""
    await run_all(deployment, build_diamond(), 1)
    idle = _read_memory(deployment)
    ids = []
    for first in range(0, count, SUBMIT_BATCH):
        batch = range(min(SUBMIT_BATCH, count - first))
        ids += await asyncio.gather(*[deployment.client.submit(build_signal_wait()) for _ in batch])
    await _wait_until_started(deployment)
    held = _read_memory(deployment)
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = deployment.clock.monotonic()
        await asyncio.gather(*[deployment.client.signal(id_, "go") for id_ in ids])
        signalled_s = deployment.clock.monotonic() - started
        seconds = max(await asyncio.gather(*map(ends.wait_until_completed, ids))) - started
    return {
        **{f"waiting_mb_{name}": held[name] - idle[name] for name in idle},
        "signal_s": signalled_s,
        "wake_s": seconds,
        "executions_per_s": count / seconds,
        "nodes_per_s": count * len(build_signal_wait().nodes) / seconds,
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


def _read_memory(deployment: BenchmarkDeployment, *, is_peak: bool = False) -> Figures:
    """Returns the memory of the largest process of each role; returns no figures without /proc."""
    read = read_peak_mb if is_peak else read_resident_mb
    figures: Figures = {}
    for name, pids in deployment.pids().items():
        known = [megabytes for megabytes in map(read, pids) if megabytes is not None]
        if known:
            figures[name] = max(known)
    return figures


def _read_cpu_by_role(deployment: BenchmarkDeployment) -> Figures:
    return {name: read_cpu_s(pids) for name, pids in deployment.pids().items()}


# A steady load below the maximum rate: latency of executions, and growth of memory.

LOAD_FRACTION = 0.7
SEND_TICK_S = 0.005
# The maximum rate is measured with this many executions always in flight, for SATURATION_S after a
# ramp-up. A burst would give a wrong rate: with PostgreSQL, most of 1,000 executions that are
# submitted at once are archived after the last execution has ended.
SATURATION_CONCURRENCY = 256
SATURATION_S, RAMP_UP_S = 6.0, 2.0


async def measure_steady_load(deployment: BenchmarkDeployment, seconds: float) -> Figures:
    """Submits diamonds at 70 % of the maximum rate, whether earlier diamonds have ended or not.

    The latency of a diamond counts from the time at which its submit was due. Memory is measured
    for the largest process of each role, after a sixth of the time and at the end.
    """
    most = await _measure_maximum_rate(deployment, min(SATURATION_S, seconds))
    per_s = LOAD_FRACTION * most
    run = _LoadGenerator(deployment)
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        begin_mb = await run.send(ends, per_s, seconds)
        took_s = deployment.clock.monotonic() - run.started
        end_mb = _read_memory(deployment)
    return {
        "maximum_per_s": most,
        "sent_per_s": run.sent / seconds,
        "executions_per_s": run.sent / took_s,
        "nodes_per_s": run.sent * len(build_diamond().nodes) / took_s,
        "latency_ms_p50": 1_000 * compute_percentile(run.latencies_s, 0.5),
        "latency_ms_p99": 1_000 * compute_percentile(run.latencies_s, 0.99),
        "latency_ms_p999": 1_000 * compute_percentile(run.latencies_s, 0.999),
        **{f"begin_mb_{name}": held for name, held in begin_mb.items()},
        **{f"end_mb_{name}": held for name, held in end_mb.items()},
    }


async def _measure_maximum_rate(deployment: BenchmarkDeployment, seconds: float) -> float:
    """Returns the executions per second of a saturated deployment."""
    clock = deployment.clock
    begin = clock.monotonic() + RAMP_UP_S
    end = begin + seconds
    ended = 0
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:

        async def run_one_after_another() -> None:
            nonlocal ended
            while clock.monotonic() < end:
                at = await ends.wait_until_completed(
                    await deployment.client.submit(build_diamond())
                )
                ended += begin <= at < end

        await asyncio.gather(*[run_one_after_another() for _ in range(SATURATION_CONCURRENCY)])
    return ended / seconds


class _LoadGenerator:
    """Submits diamonds at a fixed rate and records their latencies."""

    def __init__(self, deployment: BenchmarkDeployment) -> None:
        self.deployment = deployment
        self.started = 0.0
        self.sent = 0
        self.latencies_s: list[float] = []

    async def send(self, waiter: CompletionWaiter, per_s: float, seconds: float) -> Figures:
        """Submits the diamonds and waits for all of them.

        Returns the memory use that was measured after a sixth of the time.
        """
        clock = self.deployment.clock
        self.started = clock.monotonic()
        begin_mb: Figures = {}
        async with asyncio.TaskGroup() as group:
            passed_s = 0.0
            while passed_s < seconds:
                await clock.sleep(SEND_TICK_S)
                passed_s = min(seconds, clock.monotonic() - self.started)
                if not begin_mb and passed_s > seconds / 6:
                    begin_mb = _read_memory(self.deployment)
                while self.sent < passed_s * per_s:
                    group.create_task(self._submit_one(waiter, self.started + self.sent / per_s))
                    self.sent += 1
        return begin_mb

    async def _submit_one(self, waiter: CompletionWaiter, due: float) -> None:
        execution_id = await self.deployment.client.submit(build_diamond())
        self.latencies_s.append(await waiter.wait_until_completed(execution_id) - due)


# The workloads by name.

MeasureDeployment: TypeAlias = Callable[[BenchmarkDeployment, int], Awaitable[Figures]]


class BenchmarkWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with its default count and repetitions; `count_unit` is the unit of `count`."""

    description: str
    run: MeasureDeployment
    count: int
    count_unit: str = "executions"
    repetitions: int = 1


STANDARD_WORKLOADS: Mapping[str, BenchmarkWorkload] = {
    "diamond": BenchmarkWorkload(
        description="a, then b and c, then d: all at once, from the first submit to the last end",
        run=measure_diamonds,
        count=2_000,
        repetitions=3,
    ),
    "chain": BenchmarkWorkload(
        description="20 nodes in a row, one execution at a time: the time per edge",
        run=measure_chains,
        count=100,
    ),
    "fan": BenchmarkWorkload(
        description="1 node, 1,000 after it, 1 after these, one execution at a time",
        run=measure_fans,
        count=5,
    ),
    "graph": BenchmarkWorkload(
        description="2,000 nodes with 6,000 edges, one execution at a time",
        run=measure_large_graphs,
        count=3,
    ),
    "map": BenchmarkWorkload(
        description="a map over a list: the time per item, compared with a list of 1,000",
        run=measure_maps,
        count=100_000,
        count_unit="items",
    ),
    "waiting": BenchmarkWorkload(
        description=(
            "executions that wait for a signal: their memory, and the time until all have ended"
        ),
        run=measure_signal_waits,
        count=10_000,
    ),
    "load": BenchmarkWorkload(
        description=("diamonds at 70 % of the maximum rate: latency, and growth of memory"),
        run=measure_steady_load,
        count=60,
        count_unit="seconds",
    ),
}
