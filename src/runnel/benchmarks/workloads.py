"""What is measured on a site: each workload submits by the public client, timed from outside."""

import asyncio
from itertools import pairwise
from statistics import median

from runnel.benchmarks.figures import Figures, in_ms
from runnel.benchmarks.processes import peak_mb, processor_s, resident_mb
from runnel.benchmarks.site import Site
from runnel.benchmarks.submitting import REST_S, run_all, run_in_turn, run_one
from runnel.benchmarks.workflows import (
    CHAIN_NODES,
    FAN_WIDTH,
    chain,
    diamond,
    fan,
    graph,
    mapping,
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
