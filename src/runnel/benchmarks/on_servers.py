"""Orchestrators and workers on Redis and PostgreSQL, as `runnel` starts them."""

import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from runnel.benchmarks.fleet import Fleet, clean_environment
from runnel.benchmarks.servers import Servers
from runnel.benchmarks.site import Ends
from runnel.benchmarks.submitting import run_all
from runnel.benchmarks.told_ends import ToldEnds
from runnel.benchmarks.traces import remove_traces
from runnel.benchmarks.workflows import diamond
from runnel.client import Client
from runnel.errors import ServerFailedError
from runnel.ports.clock import Clock
from runnel.runtime.look import Look, looking
from runnel.settings import read_settings

WORKER: Sequence[str] = ("runnel", "worker", "--app", "runnel.benchmarks.handlers:handlers")
ORCHESTRATOR: Sequence[str] = ("runnel", "orchestrator")
LOOK_EVERY_S = 0.02
START_LIMIT_S = 30.0
WARMING = 20


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes, the slots of each worker, and settings by the name of their variable."""

    concurrency: int = 4
    workers: int = 1
    orchestrators: int = 1
    environ: Mapping[str, str] = {}


class ServerSite:
    def __init__(self, look: Look, fleet: Fleet, servers: Servers) -> None:
        self.client: Client = look.client
        self.clock: Clock = look.clock
        self.fleet = fleet
        self.servers = servers
        self._look = look

    def ends(self, *, rest_s: float = 0.0) -> AbstractAsyncContextManager[Ends]:
        return ToldEnds(self._look, rest_s).told()

    def pids(self) -> Mapping[str, Sequence[int]]:
        """The submitting process is not among them: a user's own would be elsewhere."""
        found: dict[str, list[int]] = {}
        for place, pid in self.fleet.pids().items():
            found.setdefault(place.partition("-")[0], []).append(pid)
        return found

    async def until_owned(self, pids: Collection[int]) -> None:
        """All partitions by all of these processes, and by nobody else."""
        end = self.clock.monotonic() + START_LIMIT_S
        while await self._owners() != set(pids):
            for place, said in self.fleet.ended().items():
                raise ServerFailedError(place, "ended while it started", log=said)
            if self.clock.monotonic() > end:
                raise ServerFailedError(
                    "orchestrator", f"did not own its partitions within {START_LIMIT_S:g} s"
                )
            await self.clock.sleep(LOOK_EVERY_S)

    async def _owners(self) -> set[int | None]:
        """Their process ids; None is there when somebody is missing."""
        store = self._look.backend.store
        leases = [await store.observe(number) for number in await store.partitions()]
        return {None if lease is None else int(lease.owner.split("-")[-2]) for lease in leases}


@asynccontextmanager
async def on_servers(servers: Servers, layout: Layout) -> AsyncIterator[ServerSite]:
    """All processes are at work and warm; on others' servers, nothing is left of it afterwards."""
    environ = _environ(servers, layout)
    settings = read_settings(clean_environment(environ))
    roles = {f"orchestrator-{each}": ORCHESTRATOR for each in range(layout.orchestrators)}
    roles |= {f"worker-{each}": WORKER for each in range(layout.workers)}
    async with looking(settings) as look:
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-"))
                fleet = stack.enter_context(Fleet(roles, environ, Path(folder)))
                site = ServerSite(look, fleet, servers)
                await site.until_owned(
                    [pid for place, pid in fleet.pids().items() if place.startswith("orch")]
                )
                async with fleet.watched(look.clock):
                    await run_all(site, diamond(), WARMING)
                    yield site
        finally:
            if not servers.is_private:
                await remove_traces(servers, look.clock)


def _environ(servers: Servers, layout: Layout) -> dict[str, str]:
    archive = {} if servers.postgres_url is None else {"POSTGRES_URL": servers.postgres_url}
    return {
        "REDIS_URL": servers.redis_url,
        "REDIS_PREFIX": servers.name,
        "POSTGRES_SCHEMA": servers.name,
        "WORKER_CONCURRENCY": str(layout.concurrency),
        "RUNNEL_LOG_LEVEL": "warning",
        **archive,
        **layout.environ,
    }
