"""Lists all jobs: each workload in its configurations."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from bench import api
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

MeasureOnDeployment = Callable[[ServerDeployment, int], Awaitable[Figures]]
MeasureOnServers = Callable[[BenchmarkServers, int], Awaitable[Figures]]


def list_jobs() -> list[BenchmarkJob]:
    return [
        *_list_embedded_jobs(),
        *_list_server_jobs(),
        *_list_standalone_jobs(),
        *list_growth_jobs(),
        *list_peer_jobs(),
    ]


def _list_embedded_jobs() -> Iterator[BenchmarkJob]:
    for label in STORAGE_MODES:
        for slots in SLOTS:
            yield _make_embedded_job("diamond", label, slots)
        for kind in ("chain", "fan", "graph"):
            yield _make_embedded_job(kind, label, 4)
    for kind in ("map", "waiting", "load"):
        yield _make_embedded_job(kind, "sqlite", 4)


def _make_embedded_job(kind: str, label: str, slots: int) -> BenchmarkJob:
    return _make_workload_job(
        kind, f"{label} x{slots}", partial(_measure_workload_embedded, kind, label, slots)
    )


def _list_server_jobs() -> Iterator[BenchmarkJob]:
    for workers in WORKERS:
        for slots in SLOTS:
            yield _make_server_job("diamond", workers, slots)
    for slots in SLOTS:
        yield _make_server_job("chain", 1, slots)
        yield _make_server_job("fan", 1, slots)
    for kind in ("graph", "map", "waiting"):
        yield _make_server_job(kind, 1, 64)
    yield _make_server_job("load", 2, 64)
    for slots in SLOTS:
        layout = DeploymentLayout(concurrency=slots)
        yield _make_job(
            f"backlog servers 1w x{slots}", partial(_measure_on_deployment, measure_backlog, layout)
        )
        yield _make_job(
            f"archive-down servers 1w x{slots}",
            partial(_measure_on_deployment, measure_archive_down, layout),
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


def _make_server_job(kind: str, workers: int, slots: int) -> BenchmarkJob:
    measured = partial(
        _measure_workload_on_servers, kind, DeploymentLayout(concurrency=slots, workers=workers)
    )
    return _make_workload_job(kind, f"servers {workers}w x{slots}", measured)


def _list_standalone_jobs() -> Iterator[BenchmarkJob]:
    yield _make_job("start cli", lambda: measure_cold_starts(RealClock(), COLD_STARTS))
    for kind in ("embedded", "servers"):
        yield _make_job(f"api {kind}", partial(api.measure_load, kind), is_once=True)


def _make_job(
    name: str, work: Callable[[], Coroutine[Any, Any, Figures]], **flags: bool
) -> BenchmarkJob:
    return BenchmarkJob(name=name, run=lambda: asyncio.run(work()), **flags)


def _make_workload_job(
    kind: str, configuration: str, work: Callable[[], Coroutine[Any, Any, Figures]]
) -> BenchmarkJob:
    flags = {"is_short": kind in SHORT_WORKLOADS, "is_once": kind in SINGLE_RUN_WORKLOADS}
    return _make_job(f"{kind} {configuration}", work, **flags)


async def _measure_workload_embedded(kind: str, label: str, slots: int) -> Figures:
    """Measures a workload, and its floor if it has one."""
    workload, storage_mode = STANDARD_WORKLOADS[kind], STORAGE_MODES[label]
    if kind not in WORKLOADS:
        measured = await measure_embedded(
            workload, storage_mode, concurrency=slots, count=workload.count, repetitions=1
        )
        return measured.figures
    async with (
        open_embedded_deployment(storage_mode, slots) as site,
        embedded_floor_for(kind, storage_mode, slots) as floor,
    ):
        return await measure_with_floor(kind, site, floor, workload.count, settle_nothing)


async def _measure_workload_on_servers(kind: str, layout: DeploymentLayout) -> Figures:
    """Measures a workload, and its floor if it has one."""
    workload = STANDARD_WORKLOADS[kind]
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        if kind not in WORKLOADS:
            measured = await measure_on_servers(
                workload, private, layout, count=workload.count, repetitions=1
            )
            return measured.figures
        async with (
            open_server_deployment(private, layout) as site,
            server_floor_for(kind, private, layout) as floor,
        ):
            settle = partial(settle_both, private)
            return await measure_with_floor(kind, site, floor, workload.count, settle)


async def _measure_on_deployment(work: MeasureOnDeployment, layout: DeploymentLayout) -> Figures:
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        async with open_server_deployment(private, layout) as site:
            return await work(site, BACKLOG_EXECUTIONS)


async def _measure_with_servers(work: MeasureOnServers, count: int) -> Figures:
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        return await work(private, count)
