"""Measures whether the cost of reading an execution depends on the sizes of its outputs.

`python -m bench.growth_views` prints the figures. Two executions have 100 nodes each: the outputs
of one have 10 KB, those of the other 10 MB. `runnel show` and a request to `runnel dev` print both.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.api import ApiProcess, BareHttpClient, serve_api, wait_until_ready
from runnel.app.embedded_engine import run_engine
from runnel.app.wiring import build_engine
from runnel.authoring.context import Context
from runnel.authoring.documents import read_document
from runnel.authoring.registry import HandlerRegistry
from runnel.bench.deployment import check_completed, clean_environment
from runnel.bench.figures import Figures
from runnel.bench.machine import read_peak_mb
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.settings.model import Settings

NODES = 100
SMALL_BYTES, LARGE_BYTES = 10_000, 10_000_000
LINE_BYTES = 100
REPETITIONS = 5
REQUESTS = 50
KB_PER_MB = 1024


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """An execution in a data directory of its own."""

    data_dir: Path
    execution_id: ExecutionId


@dataclass(frozen=True, slots=True)
class ViewCost:
    """The cost of one call: processor time, the time of the call, and the peak of memory."""

    cpu_s: float
    elapsed_s: float
    peak_mb: float


async def measure_views() -> Figures:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        small = await _store_execution(Path(folder) / "small", SMALL_BYTES)
        large = await _store_execution(Path(folder) / "large", LARGE_BYTES)
        return {
            **_compare("show", *_measure_in_turn(_show, small, large)),
            **_compare("read", await _read_over_http(small), await _read_over_http(large)),
        }


def _compare(name: str, small: ViewCost, large: ViewCost) -> Figures:
    figures: Figures = {}
    for size, cost in (("small", small), ("large", large)):
        figures |= {
            f"{name}_{size}_cpu_s": cost.cpu_s,
            f"{name}_{size}_s": cost.elapsed_s,
            f"{name}_mb_{size}": cost.peak_mb,
        }
    return {
        **figures,
        f"{name}_cost_ratio": large.cpu_s / small.cpu_s,
        f"{name}_memory_ratio": large.peak_mb / small.peak_mb,
    }


def _measure_in_turn(
    measure: Callable[[StoredExecution], ViewCost], *executions: StoredExecution
) -> list[ViewCost]:
    """Measures the executions in turn, several times; returns the medians of each execution."""
    rounds = [[measure(execution) for execution in executions] for _ in range(REPETITIONS)]
    return [
        ViewCost(
            median(cost.cpu_s for cost in costs),
            median(cost.elapsed_s for cost in costs),
            median(cost.peak_mb for cost in costs),
        )
        for costs in zip(*rounds, strict=True)
    ]


# Runs a command and prints its processor time and its peak of memory. The peak of a process that
# this benchmark started itself would be at least the memory of the benchmark.
LAUNCHER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def _show(execution: StoredExecution) -> ViewCost:
    """Runs `runnel show` and reads the use of its process from the operating system."""
    command = [sys.executable, "-m", "runnel", "show", execution.execution_id]
    started = time.perf_counter()
    printed = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *command, "--data-dir", str(execution.data_dir)],
        env=clean_environment({}),
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    cpu_s, peak_kb = map(float, printed.split())
    return ViewCost(cpu_s, time.perf_counter() - started, peak_kb / KB_PER_MB)


async def _read_over_http(execution: StoredExecution) -> ViewCost:
    """Reads an execution from `runnel dev` several times; `peak_mb` is that of the server."""
    async with _serve(execution.data_dir) as (process, http):
        cpu_s, started = process.read_cpu_s(), time.perf_counter()
        for _ in range(REQUESTS):
            await http.request("GET", f"/v1/executions/{execution.execution_id}")
        elapsed_s = time.perf_counter() - started
        used_s = process.read_cpu_s() - cpu_s
        peak_mb = read_peak_mb(process.pid) or 0.0
    return ViewCost(used_s / REQUESTS, elapsed_s / REQUESTS, peak_mb)


@asynccontextmanager
async def _serve(data_dir: Path) -> AsyncIterator[tuple[ApiProcess, BareHttpClient]]:
    environ = {"RUNNEL_DATA_DIR": str(data_dir)}
    async with serve_api(["dev"], data_dir.parent, environ) as process:
        http = BareHttpClient(process.url)
        try:
            await wait_until_ready(http)
            yield process, http
        finally:
            http.close()


async def _store_execution(data_dir: Path, output_bytes: int) -> StoredExecution:
    """Runs an execution of NODES nodes whose outputs have this size."""
    line = "x" * (LINE_BYTES - len('"",'))

    async def fill(_config: Json, _ctx: Context) -> Json:
        return [line] * (output_bytes // LINE_BYTES)

    registry = HandlerRegistry()
    registry.register("fill", fill)
    nodes = [{"id": f"n{number}", "handler": "fill"} for number in range(NODES)]
    document = {"name": "wide", "output": "filled", "nodes": nodes}
    engine = await build_engine(Settings(data_dir=data_dir), handlers=registry)
    async with run_engine(engine):
        execution_id = await engine.client.submit(read_document(document))
        header = await engine.client.wait_for_end(execution_id)
    check_completed(execution_id, header.state)
    return StoredExecution(data_dir, execution_id)


if __name__ == "__main__":
    for figure, value in asyncio.run(measure_views()).items():
        print(f"{figure:20} {value:12.3f}")
