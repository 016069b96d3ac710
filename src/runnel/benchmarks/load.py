"""A steady load below the maximum: how long executions take, and whether memory grows."""

import asyncio

from runnel.benchmarks.figures import Figures, share
from runnel.benchmarks.processes import resident_mb
from runnel.benchmarks.site import Ends, Site
from runnel.benchmarks.submitting import REST_S
from runnel.benchmarks.workflows import diamond

PART_OF_MAXIMUM = 0.7
TICK_S = 0.005
# The maximum is what ends while so many are always under way, for this long and after that long.
# Not that of a burst: on servers, of 1,000 at once most are archived after the last one has ended.
UNDER_WAY = 256
SATURATED_S, RAMP_S = 6.0, 2.0


async def steady_load(site: Site, seconds: float) -> Figures:
    """Diamonds at 70 % of what the site can do, sent whether those before have ended or not.

    The time of each is from when it was due to be sent. Memory is that after a sixth of the time
    and at the end, of the largest process of each part.
    """
    most = await _maximum(site, min(SATURATED_S, seconds))
    per_s = PART_OF_MAXIMUM * most
    run = _Run(site)
    async with site.ends(rest_s=REST_S) as ends:
        begin_mb = await run.send(ends, per_s, seconds)
        took_s = site.clock.monotonic() - run.started
        end_mb = _memory(site)
    return {
        "maximum_per_s": most,
        "sent_per_s": run.sent / seconds,
        "executions_per_s": run.sent / took_s,
        "nodes_per_s": run.sent * len(diamond().nodes) / took_s,
        "latency_ms_p50": 1_000 * share(run.seconds, 0.5),
        "latency_ms_p99": 1_000 * share(run.seconds, 0.99),
        "latency_ms_p999": 1_000 * share(run.seconds, 0.999),
        **{f"begin_mb_{name}": held for name, held in begin_mb.items()},
        **{f"end_mb_{name}": held for name, held in end_mb.items()},
    }


async def _maximum(site: Site, seconds: float) -> float:
    """Executions per second of a site that has always something to do."""
    clock = site.clock
    begin = clock.monotonic() + RAMP_S
    end = begin + seconds
    ended = 0
    async with site.ends(rest_s=REST_S) as ends:

        async def one_after_another() -> None:
            nonlocal ended
            while clock.monotonic() < end:
                at = await ends.ended(await site.client.submit(diamond()))
                ended += begin <= at < end

        await asyncio.gather(*[one_after_another() for _ in range(UNDER_WAY)])
    return ended / seconds


class _Run:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.started = 0.0
        self.sent = 0
        self.seconds: list[float] = []

    async def send(self, ends: Ends, per_s: float, seconds: float) -> Figures:
        """Returns when all have ended; the memory after a sixth of the time."""
        clock = self.site.clock
        self.started = clock.monotonic()
        begin_mb: Figures = {}
        async with asyncio.TaskGroup() as group:
            passed_s = 0.0
            while passed_s < seconds:
                await clock.sleep(TICK_S)
                passed_s = min(seconds, clock.monotonic() - self.started)
                if not begin_mb and passed_s > seconds / 6:
                    begin_mb = _memory(self.site)
                while self.sent < passed_s * per_s:
                    group.create_task(self._one(ends, self.started + self.sent / per_s))
                    self.sent += 1
        return begin_mb

    async def _one(self, ends: Ends, due: float) -> None:
        execution_id = await self.site.client.submit(diamond())
        self.seconds.append(await ends.ended(execution_id) - due)


def _memory(site: Site) -> Figures:
    found = {
        name: [each for each in map(resident_mb, pids) if each is not None]
        for name, pids in site.pids().items()
    }
    return {name: max(known) for name, known in found.items() if known}
