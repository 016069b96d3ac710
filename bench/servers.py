"""The same workloads on servers: one orchestrator and two workers, as `runnel` starts them."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from bench.workloads import CHAIN, DIAMOND, NAPPING, Figures
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.core.workflow import Workflow
from runnel.runtime.look import Look, looking
from runnel.runtime.servers import PostgresServer, RedisServer
from runnel.settings import read_settings
from tests.chaos.fleet import Fleet

WORKER = ("worker", "--app", "bench.app:handlers")
ORCHESTRATOR = ("orchestrator",)
LOOK_EVERY_S = 0.02
SUBMITTED_AT_ONCE = 200
START_LIMIT_S = 30.0


class Deployment(msgspec.Struct, frozen=True):
    fleet: Fleet
    look: Look

    async def submit(self, count: int, workflow: Workflow = DIAMOND) -> list[ExecutionId]:
        ids: list[ExecutionId] = []
        while len(ids) < count:
            some = min(SUBMITTED_AT_ONCE, count - len(ids))
            ids += await asyncio.gather(*[self.look.client.submit(workflow) for _ in range(some)])
        return ids

    async def until_ended(self, ids: list[ExecutionId]) -> None:
        """Asks for the last one that is not final yet: one look at a time."""
        for execution_id in reversed(ids):
            while not await self._is_final(execution_id):
                await self.look.clock.sleep(LOOK_EVERY_S)

    async def until_owned(self, pids: Collection[int]) -> None:
        """By all of these processes, and by nobody else."""
        end = time.perf_counter() + START_LIMIT_S
        while await self._owners() != set(pids):
            if time.perf_counter() > end:
                raise TimeoutError(f"the owners are not {pids} after {START_LIMIT_S:g} s")
            await self.look.clock.sleep(LOOK_EVERY_S)

    async def _owners(self) -> set[int | None]:
        """Their process ids; None is there when somebody is missing."""
        store = self.look.backend.store
        leases = [await store.observe(number) for number in await store.partitions()]
        return {None if lease is None else int(lease.owner.split("-")[-2]) for lease in leases}

    async def _is_final(self, execution_id: ExecutionId) -> bool:
        header = await self.look.backend.archive.get_header(execution_id)
        return header is not None and header.state in EXECUTION_FINAL


@asynccontextmanager
async def deployment(
    *, concurrency: int = 4, orchestrators: int = 1, **environ: str
) -> AsyncIterator[Deployment]:
    """Redis with AOF every second, PostgreSQL as its archive; all processes are at work."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-")))
        redis, postgres = (stack.enter_context(kind()) for kind in (RedisServer, PostgresServer))
        settings = {
            "REDIS_URL": redis.url,
            "POSTGRES_URL": postgres.url,
            "WORKER_CONCURRENCY": str(concurrency),
            "RUNNEL_LOG_LEVEL": "warning",
            **environ,
        }
        roles = {f"orchestrator-{number}": ORCHESTRATOR for number in range(orchestrators)}
        roles |= {f"worker-{number}": WORKER for number in range(2)}
        fleet = stack.enter_context(Fleet(roles, settings, folder))
        async with looking(read_settings(settings)) as look:
            found = Deployment(fleet, look)
            await found.until_owned([fleet.pid(place) for place in roles if "orch" in place])
            await found.until_ended(await found.submit(20))  # everybody is warm
            yield found


async def diamonds(concurrency: int, *, count: int = 3_000) -> Figures:
    """Submitted while nobody decides, then timed from the moment that somebody does."""
    async with deployment(concurrency=concurrency) as found:
        found.fleet.pause("orchestrator-0")
        ids = await found.submit(count)
        found.fleet.resume("orchestrator-0")
        started = time.perf_counter()
        await found.until_ended(ids)
        seconds = time.perf_counter() - started
    return {"diamonds_per_s": count / seconds, "nodes_per_s": 4 * count / seconds}


async def chain(concurrency: int, *, count: int = 50) -> Figures:
    """Between the commits that queue one node and the next, in a chain of 20 on its own."""
    times: list[float] = []
    async with deployment(concurrency=concurrency) as found:
        for _ in range(count):
            execution_id = await found.look.client.submit(CHAIN)
            await found.until_ended([execution_id])
            history = await found.look.client.history(execution_id)
            queued = [each.at for each in history if each.event == "NodeQueued"]
            times += [after - before for before, after in pairwise(queued)]
    times.sort()
    return {
        "edge_ms_p50": 1_000 * times[len(times) // 2],
        "edge_ms_p99": 1_000 * times[len(times) * 99 // 100],
    }


async def killed_workers(*, count: int = 100) -> Figures:
    """Both workers are killed in the middle of 100 diamonds and started again.

    A node takes 50 ms, so that every slot has one when it is killed: 2.5 s in all for eight slots.
    """
    timeout_s = 3.0
    async with deployment(
        concurrency=4,
        WORKER_HEARTBEAT_TIMEOUT=str(timeout_s),
        WORKER_HEARTBEAT_INTERVAL=str(timeout_s / 4),
    ) as found:
        ids = await found.submit(count, NAPPING)
        await found.look.clock.sleep(1.0)
        for place in ("worker-0", "worker-1"):
            found.fleet.replace(place)
        started = time.perf_counter()
        await found.until_ended(ids)
        seconds = time.perf_counter() - started
    return {"killed_workers_finished": float(count), "killed_workers_s": seconds}


async def takeovers(*, count: int = 20, lease_s: float = 3.0) -> Figures:
    """From the kill of one of two orchestrators until the other one owns every partition."""
    times: list[float] = []
    places = ("orchestrator-0", "orchestrator-1")
    async with deployment(orchestrators=2, ORCHESTRATOR_LEASE_TIMEOUT=str(lease_s)) as found:
        fleet = found.fleet
        for number in range(count):
            dead, alive = places[number % 2], places[1 - number % 2]
            await found.until_owned([fleet.pid(place) for place in places])
            fleet.kill(dead)
            started = time.perf_counter()
            await found.until_owned([fleet.pid(alive)])
            times.append(time.perf_counter() - started)
            fleet.start(dead)
    times.sort()
    return {"takeover_s_p50": times[count // 2], "takeover_s_max": times[-1]}
