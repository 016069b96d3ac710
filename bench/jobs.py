"""Everything that is measured: workloads by configurations."""

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
from bench.job import Job
from bench.peer_jobs import peer_jobs
from runnel.bench.runs import Storing, cold_starts, embedded, measure_embedded
from runnel.bench.server_workloads import (
    archive_down,
    backlog,
    killed_workers,
    measure_on_servers,
    takeovers,
)
from runnel.bench.servers import Layout, Servers, ServerSite, on_servers, servers
from runnel.bench.setup import Figures
from runnel.bench.workloads import KINDS
from runnel.engine.clock import RealClock, RealIds

EMBEDDED: dict[str, Storing] = {"memory": "memory", "sqlite": "process", "sqlite-power": "power"}
SLOTS = (4, 64)
WORKERS = (1, 2)
SHORT = frozenset({"diamond", "chain", "fan"})
# A minute of load is a sample by itself.
ONCE = frozenset({"load"})
BACKLOG = 2_000
KILLS, KILLED = 10, 100
STARTS = 5

OnSite = Callable[[ServerSite, int], Awaitable[Figures]]
OnServers = Callable[[Servers, int], Awaitable[Figures]]


def jobs() -> list[Job]:
    return [*_embedded(), *_on_servers(), *_alone(), *peer_jobs()]


def _embedded() -> Iterator[Job]:
    for label in EMBEDDED:
        for slots in SLOTS:
            yield _embedded_job("diamond", label, slots)
        for kind in ("chain", "fan", "graph"):
            yield _embedded_job(kind, label, 4)
    for kind in ("map", "waiting", "load"):
        yield _embedded_job(kind, "sqlite", 4)


def _embedded_job(kind: str, label: str, slots: int) -> Job:
    return _kind_job(kind, f"{label} x{slots}", partial(_measure_embedded, kind, label, slots))


def _on_servers() -> Iterator[Job]:
    for workers in WORKERS:
        for slots in SLOTS:
            yield _server_job("diamond", workers, slots)
    for slots in SLOTS:
        yield _server_job("chain", 1, slots)
        yield _server_job("fan", 1, slots)
    for kind in ("graph", "map", "waiting"):
        yield _server_job(kind, 1, 64)
    yield _server_job("load", 2, 64)
    for slots in SLOTS:
        layout = Layout(concurrency=slots)
        yield _job(f"backlog servers 1w x{slots}", partial(_on_site, backlog, layout))
        yield _job(f"archive-down servers 1w x{slots}", partial(_on_site, archive_down, layout))
    yield _job("takeover servers", partial(_with_servers, takeovers, KILLS), is_once=True)
    yield _job("killed-workers servers", partial(_with_servers, killed_workers, KILLED))


def _server_job(kind: str, workers: int, slots: int) -> Job:
    measured = partial(_measure_on_servers, kind, Layout(concurrency=slots, workers=workers))
    return _kind_job(kind, f"servers {workers}w x{slots}", measured)


def _alone() -> Iterator[Job]:
    yield _job("start cli", lambda: cold_starts(RealClock(), STARTS))
    for kind in ("embedded", "servers"):
        yield _job(f"api {kind}", partial(api.load, kind), is_once=True)


def _job(name: str, work: Callable[[], Coroutine[Any, Any, Figures]], **about: bool) -> Job:
    return Job(name=name, run=lambda: asyncio.run(work()), **about)


def _kind_job(
    kind: str, configuration: str, work: Callable[[], Coroutine[Any, Any, Figures]]
) -> Job:
    about = {"is_short": kind in SHORT, "is_once": kind in ONCE}
    return _job(f"{kind} {configuration}", work, **about)


async def _measure_embedded(kind: str, label: str, slots: int) -> Figures:
    """The floor, where there is one, is one figure more."""
    found, storing = KINDS[kind], EMBEDDED[label]
    if kind not in WORKLOADS:
        measured = await measure_embedded(
            found, storing, concurrency=slots, count=found.count, repetitions=1
        )
        return measured.figures
    async with (
        embedded(storing, slots) as site,
        embedded_floor_for(kind, storing, slots) as floor,
    ):
        return await measure_with_floor(kind, site, floor, found.count, settle_nothing)


async def _measure_on_servers(kind: str, layout: Layout) -> Figures:
    """The floor, where there is one, is one figure more."""
    found = KINDS[kind]
    with servers(nonce=RealIds().nonce()) as private:
        if kind not in WORKLOADS:
            measured = await measure_on_servers(
                found, private, layout, count=found.count, repetitions=1
            )
            return measured.figures
        async with (
            on_servers(private, layout) as site,
            server_floor_for(kind, private, layout) as floor,
        ):
            settle = partial(settle_both, private)
            return await measure_with_floor(kind, site, floor, found.count, settle)


async def _on_site(work: OnSite, layout: Layout) -> Figures:
    with servers(nonce=RealIds().nonce()) as private:
        async with on_servers(private, layout) as site:
            return await work(site, BACKLOG)


async def _with_servers(work: OnServers, count: int) -> Figures:
    with servers(nonce=RealIds().nonce()) as private:
        return await work(private, count)
