"""What is measured on a site: each workload submits by the public client, timed from outside."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import TypeAlias

import msgspec

from runnel.bench.setup import (
    CHAIN_NODES,
    FAN_WIDTH,
    REST_S,
    Ends,
    Figures,
    Site,
    chain,
    diamond,
    fan,
    graph,
    in_ms,
    mapping,
    peak_mb,
    processor_s,
    resident_mb,
    run_all,
    run_in_turn,
    run_one,
    share,
    waiting,
)
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.ports.archive import ExecutionFilter

SMALL_MAP = 1_000
LOOK_EVERY_S = 0.05
WAIT_LIMIT_S = 600.0
# With them outstanding, a submit is never what keeps the others waiting.
SENT_AT_ONCE = 500
CHAINS_READ = 20


async def diamonds(site: Site, count: int) -> Figures:
    """All at once: from the first submit to the last end, as whoever submits them sees it."""
    before = _processor_s(site)
    seconds = await run_all(site, diamond(), count)
    used = {name: used_s - before[name] for name, used_s in _processor_s(site).items()}
    return {
        "executions_per_s": count / seconds,
        "nodes_per_s": count * len(diamond().nodes) / seconds,
        **{f"processor_us_{name}": 1e6 * used_s / count for name, used_s in used.items()},
    }


async def chains(site: Site, count: int) -> Figures:
    """One at a time: its time from outside by the number of its nodes, and the time of a hop.

    A hop is between the commits that queue one node and the next, as the history tells.
    """
    seconds = await run_in_turn(site, chain(), count)
    hops = await _hops(site, chain(), min(count, CHAINS_READ))
    return {
        **in_ms("edge", [each / CHAIN_NODES for each in seconds]),
        **in_ms("hop", hops),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": CHAIN_NODES * count / sum(seconds),
    }


async def fans(site: Site, count: int) -> Figures:
    """One at a time: 1 → 1,000 → 1."""
    seconds = await run_in_turn(site, fan(), count)
    return {
        f"fan_{FAN_WIDTH}_s": median(seconds),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": count * (FAN_WIDTH + 2) / sum(seconds),
    }


async def graphs(site: Site, count: int) -> Figures:
    """One at a time: 2,000 nodes with 6,000 edges."""
    seconds = await run_in_turn(site, graph(), count)
    return {
        "graph_s": median(seconds),
        "executions_per_s": count / sum(seconds),
        "nodes_per_s": count * len(graph().nodes) / sum(seconds),
    }


async def maps(site: Site, count: int) -> Figures:
    """One of 1,000 items, three times, and one of `count`: what an item costs, and memory."""
    idle = _memory(site)
    small = [await run_one(site, mapping(), {"items": list(range(SMALL_MAP))}) for _ in range(3)]
    seconds = await run_one(site, mapping(), {"items": list(range(count))})
    costs = median(small) / SMALL_MAP, seconds / count
    figures = {
        f"map_{SMALL_MAP}_us_per_item": 1e6 * costs[0],
        f"map_{count}_us_per_item": 1e6 * costs[1],
        "map_cost_ratio": costs[1] / costs[0],
        "nodes_per_s": count / seconds,
    }
    for name, peak in _memory(site, is_peak=True).items():
        figures[f"map_peak_mb_{name}"] = peak - idle[name]
    return figures


async def waits(site: Site, count: int) -> Figures:
    """Memory above that of the idle processes while all wait, and the time until all have ended."""
    await run_all(site, diamond(), 1)
    idle = _memory(site)
    ids = []
    for first in range(0, count, SENT_AT_ONCE):
        some = range(min(SENT_AT_ONCE, count - first))
        ids += await asyncio.gather(*[site.client.submit(waiting()) for _ in some])
    await _until_begun(site)
    held = _memory(site)
    async with site.ends(rest_s=REST_S) as ends:
        started = site.clock.monotonic()
        await asyncio.gather(*[site.client.signal(each, "go") for each in ids])
        signalled_s = site.clock.monotonic() - started
        seconds = max(await asyncio.gather(*map(ends.ended, ids))) - started
    return {
        **{f"waiting_mb_{name}": held[name] - idle[name] for name in idle},
        "signal_s": signalled_s,
        "wake_s": seconds,
        "executions_per_s": count / seconds,
        "nodes_per_s": count * len(waiting().nodes) / seconds,
    }


async def _until_begun(site: Site) -> None:
    """An execution that has begun waits from then on: both are one commit."""
    unbegun = ExecutionFilter(workflow=waiting().name, states=(ExecutionState.PENDING,))
    end = site.clock.monotonic() + WAIT_LIMIT_S
    while any(each.number for each in (await site.client.count_executions(unbegun)).values()):
        if site.clock.monotonic() > end:
            raise TimeoutError(f"not all executions have begun within {WAIT_LIMIT_S:g} s")
        await site.clock.sleep(LOOK_EVERY_S)


async def _hops(site: Site, workflow: Workflow, count: int) -> list[float]:
    found = []
    async with site.ends() as ends:
        for _ in range(count):
            execution_id = await site.client.submit(workflow)
            await ends.ended(execution_id)
            history = await site.client.history(execution_id)
            queued = [each.at for each in history if each.event == "NodeQueued"]
            found += [after - before for before, after in pairwise(queued)]
    return found


def _memory(site: Site, *, is_peak: bool = False) -> Figures:
    """Of each part, its largest process; empty where nobody tells."""
    read = peak_mb if is_peak else resident_mb
    figures: Figures = {}
    for name, pids in site.pids().items():
        known = [each for each in map(read, pids) if each is not None]
        if known:
            figures[name] = max(known)
    return figures


def _processor_s(site: Site) -> Figures:
    return {name: processor_s(pids) for name, pids in site.pids().items()}


# A steady load below the maximum: how long executions take, and whether memory grows.

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
        end_mb = _memory_mb(site)
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
                    begin_mb = _memory_mb(self.site)
                while self.sent < passed_s * per_s:
                    group.create_task(self._one(ends, self.started + self.sent / per_s))
                    self.sent += 1
        return begin_mb

    async def _one(self, ends: Ends, due: float) -> None:
        execution_id = await self.site.client.submit(diamond())
        self.seconds.append(await ends.ended(execution_id) - due)


def _memory_mb(site: Site) -> Figures:
    found = {
        name: [each for each in map(resident_mb, pids) if each is not None]
        for name, pids in site.pids().items()
    }
    return {name: max(known) for name, known in found.items() if known}


# The workloads by name: what each runs, and how often.

RunOnSite: TypeAlias = Callable[[Site, int], Awaitable[Figures]]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`counted` says what `count` is."""

    about: str
    run: RunOnSite
    count: int
    counted: str = "executions"
    repetitions: int = 1


KINDS: Mapping[str, Kind] = {
    "diamond": Kind(
        about="a, then b and c, then d: all at once, from the first submit to the last end",
        run=diamonds,
        count=2_000,
        repetitions=3,
    ),
    "chain": Kind(
        about="20 nodes in a row, one execution at a time: the time of an edge",
        run=chains,
        count=100,
    ),
    "fan": Kind(
        about="1 node, 1,000 behind it, 1 behind these, one execution at a time",
        run=fans,
        count=5,
    ),
    "graph": Kind(
        about="2,000 nodes with 6,000 edges, one execution at a time",
        run=graphs,
        count=3,
    ),
    "map": Kind(
        about="one node for each item of a list: what an item costs, against a list of 1,000",
        run=maps,
        count=100_000,
        counted="items",
    ),
    "waiting": Kind(
        about="executions that wait for a signal: their memory, and the time until all are woken",
        run=waits,
        count=10_000,
    ),
    "load": Kind(
        about="diamonds at 70 % of the maximum: how long each takes, and whether memory grows",
        run=steady_load,
        count=60,
        counted="seconds",
    ),
}
