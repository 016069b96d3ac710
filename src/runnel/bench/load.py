"""A load of diamonds at a steady rate: latency of executions, and growth of memory."""

import asyncio

from runnel.bench.deployment import (
    FEED_PAUSE_S,
    BenchmarkDeployment,
    EngineOnlyWork,
    FunctionWork,
    MeasuredWork,
    RunExecution,
)
from runnel.bench.figures import Figures, compute_percentile, name_engine_only
from runnel.bench.machine import read_memory_by_role
from runnel.bench.workflows import build_diamond

LOAD_FRACTION = 0.7
SEND_TICK_S = 0.005
# The maximum rate is measured with this many executions always in flight, for SATURATION_S after a
# ramp-up. A burst would give a wrong rate: with PostgreSQL, most of 1,000 executions that are
# submitted at once are archived after the last execution has ended.
SATURATION_CONCURRENCY = 256
SATURATION_S, RAMP_UP_S = 6.0, 2.0


async def measure_steady_load(deployment: BenchmarkDeployment, seconds: float) -> Figures:
    """Submits engine-only diamonds at 70 % of the maximum rate, whether earlier ones ended or not.

    The latency of a diamond counts from the time at which its submit was due. Memory is measured
    for the largest process of each role, after a sixth of the time and at the end.
    """
    work = EngineOnlyWork(build_diamond())
    most = await _measure_maximum_rate(deployment, work, min(SATURATION_S, seconds))
    figures = await _measure_load(deployment, work, LOAD_FRACTION * most, seconds)
    return {"maximum_per_s": most, **name_engine_only(figures)}


async def measure_load_at_rate(
    deployment: BenchmarkDeployment, per_s: float, seconds: float
) -> Figures:
    """Submits diamonds of sync functions at a fixed rate, and then engine-only ones."""
    functions = await _measure_load(deployment, FunctionWork("sync", "diamond"), per_s, seconds)
    engine_only = await _measure_load(deployment, EngineOnlyWork(build_diamond()), per_s, seconds)
    return {
        **functions,
        **{
            f"engine_only_{name}": value for name, value in engine_only.items() if "latency" in name
        },
    }


async def _measure_load(
    deployment: BenchmarkDeployment, work: MeasuredWork, per_s: float, seconds: float
) -> Figures:
    async with work.open(deployment, pause_s=FEED_PAUSE_S) as run:
        load = _LoadGenerator(deployment, run)
        begin_mb = await load.send(per_s, seconds)
        took_s = deployment.clock.monotonic() - load.started
        end_mb = read_memory_by_role(deployment.pids())
    return {
        "sent_per_s": load.sent / seconds,
        "executions_per_s": load.sent / took_s,
        "nodes_per_s": load.sent * work.node_count / took_s,
        "latency_ms_p50": 1_000 * compute_percentile(load.latencies_s, 0.5),
        "latency_ms_p99": 1_000 * compute_percentile(load.latencies_s, 0.99),
        "latency_ms_p999": 1_000 * compute_percentile(load.latencies_s, 0.999),
        **{f"begin_mb_{name}": held for name, held in begin_mb.items()},
        **{f"end_mb_{name}": held for name, held in end_mb.items()},
    }


async def _measure_maximum_rate(
    deployment: BenchmarkDeployment, work: MeasuredWork, seconds: float
) -> float:
    """Returns the executions per second of a saturated deployment."""
    clock = deployment.clock
    begin = clock.monotonic() + RAMP_UP_S
    end = begin + seconds
    ended = 0
    async with work.open(deployment, pause_s=FEED_PAUSE_S) as run:

        async def run_one_after_another() -> None:
            nonlocal ended
            while clock.monotonic() < end:
                at = await run(0)
                ended += begin <= at < end

        await asyncio.gather(*[run_one_after_another() for _ in range(SATURATION_CONCURRENCY)])
    return ended / seconds


class _LoadGenerator:
    """Submits executions at a fixed rate and records their latencies."""

    def __init__(self, deployment: BenchmarkDeployment, run: RunExecution) -> None:
        self.deployment = deployment
        self.run = run
        self.started = 0.0
        self.sent = 0
        self.latencies_s: list[float] = []

    async def send(self, per_s: float, seconds: float) -> Figures:
        """Submits the executions and waits for all of them.

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
                    begin_mb = read_memory_by_role(self.deployment.pids())
                while self.sent < passed_s * per_s:
                    group.create_task(self._run_one(self.started + self.sent / per_s))
                    self.sent += 1
        return begin_mb

    async def _run_one(self, due: float) -> None:
        self.latencies_s.append(await self.run(self.sent) - due)
