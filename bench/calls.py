"""Measures calls of a workflow of one sync function: each call returns the checked result.

The callers call an open engine, `runnel.run` with nothing open, or `runnel dev` over HTTP.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import runnel
from bench.api import serve_api
from bench.job import BenchmarkJob
from runnel.bench.figures import Figures, summarize_latency
from runnel.bench.functions import single

ENGINE_CALLERS = (1, 64)
HTTP_CALLERS = (1, 8, 32, 128)
SLOTS = 4
WARMUP_S, MEASURED_S = 1.0, 5.0

Call = Callable[[int], Awaitable[object]]


class WrongCallError(Exception):
    """A call returned a wrong result."""


def list_call_jobs() -> Iterator[BenchmarkJob]:
    for callers in ENGINE_CALLERS:
        yield BenchmarkJob(
            name=f"call engine c{callers}", run=partial(_run_job, measure_engine_calls, callers)
        )
    yield BenchmarkJob(name="call run c1", run=partial(_run_job, measure_run_calls, 1))
    for callers in HTTP_CALLERS:
        yield BenchmarkJob(
            name=f"call http c{callers}", run=partial(_run_job, measure_http_calls, callers)
        )


def _run_job(measure: Callable[[int], Awaitable[Figures]], callers: int) -> Figures:
    async def run() -> Figures:
        return await measure(callers)

    return asyncio.run(run())


async def measure_engine_calls(callers: int) -> Figures:
    """Measures calls of an engine that stays open, in this process."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        async with runnel.Engine(data_dir=folder, concurrency=SLOTS) as engine:

            async def call(number: int) -> None:
                _check_result(await engine.run(single, number), number)

            return await measure_calls(call, callers)


async def measure_run_calls(callers: int) -> Figures:
    """Measures `runnel.run`, which opens and closes an engine if none is open."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        flow = single.run_options(data_dir=folder, concurrency=SLOTS)

        async def call(number: int) -> None:
            result = await runnel.run(flow, number)
            _check_result(result, number)

        return await measure_calls(call, callers)


async def measure_http_calls(callers: int) -> Figures:
    """Measures `runnel.Client.run` against `runnel dev`, and the processor time of both."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        arguments = ["dev", "--app", "runnel.bench.functions"]
        async with (
            serve_api(arguments, Path(folder), {}) as server,
            runnel.Client(server.url) as client,
        ):

            async def call(number: int) -> None:
                _check_result((await client.run(single, {"x": number})).output, number)

            await _call_for(call, callers, WARMUP_S)
            client_s, server_s = time.process_time(), server.read_cpu_s()
            figures, number = await _measure_for(call, callers)
            used = {
                "client": time.process_time() - client_s,
                "server": server.read_cpu_s() - server_s,
            }
    return figures | {f"processor_us_{name}": 1e6 * s / number for name, s in used.items()}


async def measure_calls(call: Call, callers: int) -> Figures:
    await _call_for(call, callers, WARMUP_S)
    return (await _measure_for(call, callers))[0]


async def _measure_for(call: Call, callers: int) -> tuple[Figures, int]:
    """Returns the figures of MEASURED_S of calls, and their number."""
    started = time.perf_counter()
    seconds = await _call_for(call, callers, MEASURED_S)
    per_s = len(seconds) / (time.perf_counter() - started)
    return {"calls_per_s": per_s, **summarize_latency("call", seconds)}, len(seconds)


async def _call_for(call: Call, callers: int, seconds: float) -> list[float]:
    """Lets each caller call again and again; returns the duration of each call in seconds."""
    numbers = count()
    durations: list[float] = []
    end = time.perf_counter() + seconds

    async def call_in_turn() -> None:
        while (started := time.perf_counter()) < end:
            await call(next(numbers))
            durations.append(time.perf_counter() - started)

    await asyncio.gather(*[call_in_turn() for _ in range(callers)])
    return durations


def _check_result(result: object, number: int) -> None:
    if result != number + 1:
        raise WrongCallError(f"expected {number + 1}, got {result}")
