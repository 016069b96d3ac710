"""Executions that are submitted at once, and waited for."""

import asyncio

from runnel.benchmarks.site import Site
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow

# Of many at once, the last end may be known so much later: a hundredth of half a second.
REST_S = 0.005


async def run_all(site: Site, workflow: Workflow, count: int) -> float:
    """Seconds from the first submit to the last end, with everything submitted at once."""
    async with site.ends(rest_s=REST_S) as ends:
        started = site.clock.monotonic()
        ids = await asyncio.gather(*[site.client.submit(workflow) for _ in range(count)])
        ended = await asyncio.gather(*map(ends.ended, ids))
    return max(ended) - started


async def run_one(site: Site, workflow: Workflow, input_: Json = None) -> float:
    """Seconds from its submit to its end."""
    async with site.ends() as ends:
        started = site.clock.monotonic()
        return await ends.ended(await site.client.submit(workflow, input_)) - started


async def run_in_turn(site: Site, workflow: Workflow, count: int) -> list[float]:
    """Seconds of each, one at a time."""
    async with site.ends() as ends:
        seconds = []
        for _ in range(count):
            started = site.clock.monotonic()
            seconds.append(await ends.ended(await site.client.submit(workflow)) - started)
    return seconds
