"""Lists all jobs: each workload in its configurations."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from bench import api, growth_views
from bench.calls import list_call_jobs
from bench.floors.measurement import (
    embedded_floor_for,
    measure_with_floor,
    server_floor_for,
    settle_both,
    settle_nothing,
)
from bench.floors.workloads import WORKLOADS
from bench.growth import list_growth_jobs
from bench.job import BenchmarkJob
from bench.peer_jobs import list_peer_jobs
from runnel.bench.figures import Figures
from runnel.bench.functions import FUNCTION_KINDS, FunctionKind
from runnel.bench.load import measure_load_at_rate
from runnel.bench.runs import (
    StorageMode,
    measure_cold_starts,
    measure_embedded,
    open_embedded_deployment,
)
from runnel.bench.server_workloads import (
    measure_archive_down,
    measure_backlog,
    measure_killed_workers,
    measure_on_servers,
    measure_takeovers,
)
from runnel.bench.servers import (
    BenchmarkServers,
    DeploymentLayout,
    ServerDeployment,
    open_server_deployment,
    open_servers,
)
from runnel.bench.workloads import STANDARD_WORKLOADS
from runnel.engine.clock import RandomIdGenerator, RealClock

STORAGE_MODES: dict[str, StorageMode] = {
    "memory": "memory",
    "sqlite": "process",
    "sqlite-power": "power",
}
SLOTS = (4, 64)
WORKERS = (1, 2)
SHORT_WORKLOADS = frozenset({"diamond", "chain", "fan"})
# A minute of load needs no repetitions.
SINGLE_RUN_WORKLOADS = frozenset({"load"})
BACKLOG_EXECUTIONS = 2_000
ORCHESTRATOR_KILLS, KILLED_WORKERS_EXECUTIONS = 10, 100
COLD_STARTS = 5
FIXED_LOAD_PER_S, FIXED_LOAD_S = 600, 10.0

MeasureOnDeployment = Callable[[ServerDeployment], Awaitable[Figures]]
MeasureOnServers = Callable[[BenchmarkServers, int], Awaitable[Figures]]


def list_jobs() -> list[BenchmarkJob]:
    return [
        *_list_embedded_jobs(),
        *_list_server_jobs(),
        *_list_standalone_jobs(),
        *list_call_jobs(),
        *list_growth_jobs(),
        *list_peer_jobs(),
    ]


def _list_embedded_jobs() -> Iterator[BenchmarkJob]:
    for label in STORAGE_MODES:
        for slots in SLOTS:
            yield from _make_embedded_jobs("diamond", label, slots)
        for kind in ("chain", "fan", "graph"):
            yield from _make_embedded_jobs(kind, label, 4)
    for kind in ("map", "waiting", "load"):
        yield from _make_embedded_jobs(kind, "sqlite", 4)


def _make_embedded_jobs(kind: str, label: str, slots: int) -> Iterator[BenchmarkJob]:
    work = partial(_measure_workload_embedded, kind, label, slots)
    return _make_workload_jobs(kind, f"{label} x{slots}", work)


def _list_server_jobs() -> Iterator[BenchmarkJob]:
    for workers in WORKERS:
        for slots in SLOTS:
            yield from _make_server_jobs("diamond", workers, slots)
    for slots in SLOTS:
        yield from _make_server_jobs("chain", 1, slots)
        yield from _make_server_jobs("fan", 1, slots)
    for kind in ("graph", "map", "waiting"):
        yield from _make_server_jobs(kind, 1, 64)
    yield from _make_server_jobs("load", 2, 64)
    yield _make_job(
        f"load-{FIXED_LOAD_PER_S} servers 2w x64",
        partial(
            _measure_on_deployment,
            lambda deployment: measure_load_at_rate(deployment, FIXED_LOAD_PER_S, FIXED_LOAD_S),
            DeploymentLayout(concurrency=64, workers=2),
        ),
    )
    for slots in SLOTS:
        layout = DeploymentLayout(concurrency=slots)
        for name, measure in (("backlog", measure_backlog), ("archive-down", measure_archive_down)):
            yield _make_job(
                f"{name} servers 1w x{slots}",
                partial(_measure_on_deployment, partial(measure, count=BACKLOG_EXECUTIONS), layout),
            )
    yield _make_job(
        "takeover servers",
        partial(_measure_with_servers, measure_takeovers, ORCHESTRATOR_KILLS),
        is_once=True,
    )
    yield _make_job(
        "killed-workers servers",
        partial(_measure_with_servers, measure_killed_workers, KILLED_WORKERS_EXECUTIONS),
    )


def _make_server_jobs(kind: str, workers: int, slots: int) -> Iterator[BenchmarkJob]:
    layout = DeploymentLayout(concurrency=slots, workers=workers)
    work = partial(_measure_workload_on_servers, kind, layout)
    return _make_workload_jobs(kind, f"servers {workers}w x{slots}", work)


def _list_standalone_jobs() -> Iterator[BenchmarkJob]:
    yield _make_job("start cli", lambda: measure_cold_starts(RealClock(), COLD_STARTS))
    yield _make_job("growth show", growth_views.measure_views)
    for kind in ("embedded", "servers"):
        yield _make_job(f"api {kind}", partial(api.measure_load, kind), is_once=True)


def _make_job(
    name: str, work: Callable[[], Coroutine[Any, Any, Figures]], **flags: bool
) -> BenchmarkJob:
    return BenchmarkJob(name=name, run=lambda: asyncio.run(work()), **flags)


def _make_workload_jobs(
    kind: str,
    configuration: str,
    work: Callable[[FunctionKind], Coroutine[Any, Any, Figures]],
) -> Iterator[BenchmarkJob]:
    """Yields a job for sync and one for async functions, or one job if the workload has none."""
    flags = {"is_short": kind in SHORT_WORKLOADS, "is_once": kind in SINGLE_RUN_WORKLOADS}
    if STANDARD_WORKLOADS[kind].functions is None:
        yield _make_job(f"{kind} {configuration}", partial(work, "sync"), **flags)
        return
    for functions in FUNCTION_KINDS:
        yield _make_job(f"{kind} {functions} {configuration}", partial(work, functions), **flags)


async def _measure_workload_embedded(
    kind: str, label: str, slots: int, functions: FunctionKind
) -> Figures:
    """Measures a workload, and its floor if it has one."""
    count, storage_mode = STANDARD_WORKLOADS[kind].count, STORAGE_MODES[label]
    if kind not in WORKLOADS:
        measured = await measure_embedded(
            kind, storage_mode, concurrency=slots, count=count, repetitions=1
        )
        return measured.figures
    async with (
        open_embedded_deployment(storage_mode, slots) as site,
        embedded_floor_for(kind, storage_mode, slots) as floor,
    ):
        return await measure_with_floor(
            kind, site, floor, count, settle=settle_nothing, functions=functions
        )


async def _measure_workload_on_servers(
    kind: str, layout: DeploymentLayout, functions: FunctionKind
) -> Figures:
    """Measures a workload, and its floor if it has one."""
    count = STANDARD_WORKLOADS[kind].count
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        if kind not in WORKLOADS:
            measured = await measure_on_servers(kind, private, layout, count=count, repetitions=1)
            return measured.figures
        async with (
            open_server_deployment(private, layout) as site,
            server_floor_for(kind, private, layout) as floor,
        ):
            settle = partial(settle_both, private)
            return await measure_with_floor(
                kind, site, floor, count, settle=settle, functions=functions
            )


async def _measure_on_deployment(work: MeasureOnDeployment, layout: DeploymentLayout) -> Figures:
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        async with open_server_deployment(private, layout) as site:
            return await work(site)


async def _measure_with_servers(work: MeasureOnServers, count: int) -> Figures:
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        return await work(private, count)
