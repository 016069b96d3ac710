"""What a death costs: of workers in the middle of their tasks, and of an orchestrator."""

import asyncio
from statistics import median

from runnel.benchmarks.figures import Figures
from runnel.benchmarks.on_servers import Layout, ServerSite, on_servers
from runnel.benchmarks.servers import Servers
from runnel.benchmarks.workflows import napping_diamond

LEASE_S = 3.0
TIMEOUT_S = 3.0
PLACES = ("orchestrator-0", "orchestrator-1")


async def takeovers(servers: Servers, count: int) -> Figures:
    """From the kill -9 of one of two orchestrators until the other one owns every partition."""
    layout = Layout(orchestrators=2, environ={"ORCHESTRATOR_LEASE_TIMEOUT": str(LEASE_S)})
    async with on_servers(servers, layout) as site:
        seconds = [await _take_over(site, number) for number in range(count)]
    return {
        "takeover_lease_s": LEASE_S,
        "takeover_s_p50": median(seconds),
        "takeover_s_max": max(seconds),
    }


async def _take_over(site: ServerSite, number: int) -> float:
    dead, alive = PLACES[number % 2], PLACES[1 - number % 2]
    await site.until_owned([site.fleet.pid(place) for place in PLACES])
    site.fleet.kill(dead)
    started = site.clock.monotonic()
    await site.until_owned([site.fleet.pid(alive)])
    seconds = site.clock.monotonic() - started
    site.fleet.start(dead)
    return seconds


async def killed_workers(servers: Servers, count: int) -> Figures:
    """Two workers are killed with -9 once a tenth of these diamonds have ended, and started again.

    A node takes 50 ms, so that every slot has one when it is killed.
    """
    layout = Layout(
        workers=2,
        environ={
            "WORKER_HEARTBEAT_TIMEOUT": str(TIMEOUT_S),
            "WORKER_HEARTBEAT_INTERVAL": str(TIMEOUT_S / 4),
        },
    )
    async with on_servers(servers, layout) as site, site.ends() as ends:
        ids = await asyncio.gather(*[site.client.submit(napping_diamond()) for _ in range(count)])
        waits = [ends.ended(each) for each in ids]
        ended: list[float] = []
        killed_at = 0.0
        for wait in asyncio.as_completed(waits):
            ended.append(await wait)
            if len(ended) == max(1, count // 10):
                for place in ("worker-0", "worker-1"):
                    site.fleet.replace(place)
                killed_at = site.clock.monotonic()
    return {
        "killed_workers_finished": float(len(ended)),
        "killed_workers_s": max(ended) - killed_at,
    }
