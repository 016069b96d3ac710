"""What is measured: each workload submits through the public client and is timed from outside."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.app import noop
from runnel.authoring.document import read_document
from runnel.core.events import NodeWaits
from runnel.core.workflow import Workflow
from runnel.handlers import builtin_registry
from runnel.runtime.build import build_engine, build_memory_engine
from runnel.runtime.engine import Engine, running
from runnel.runtime.hub import Happened, Started
from runnel.settings import Settings

Figures = dict[str, float]


@asynccontextmanager
async def engine(backend: str, concurrency: int) -> AsyncIterator[Engine]:
    """`backend` is memory, sqlite (safe against process death) or sqlite-power."""
    handlers = builtin_registry()
    handlers.register("noop", noop)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        settings = Settings(
            data_dir=Path(folder),
            worker_concurrency=concurrency,
            durability="power" if backend.endswith("power") else "process",
        )
        if backend == "memory":
            opened = build_memory_engine(settings, handlers=handlers)
        else:
            opened = await build_engine(settings, handlers=handlers)
        async with running(opened):
            yield opened


def _workflow(name: str, edges: dict[str, list[str]], *, handler: str = "noop") -> Workflow:
    nodes = [
        {"id": node, "handler": handler, "dependencies": parents} for node, parents in edges.items()
    ]
    return read_document({"name": name, "nodes": nodes}, source=name)


_DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
DIAMOND = _workflow("diamond", _DIAMOND)
NAPPING = _workflow("napping", _DIAMOND, handler="nap")
CHAIN = _workflow("chain", {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(20)})
FAN = _workflow(
    "fan",
    {"a": [], **{f"b{i}": ["a"] for i in range(1_000)}, "z": [f"b{i}" for i in range(1_000)]},
)
MAP = read_document(
    {
        "name": "map",
        "nodes": [{"id": "each", "handler": "noop", "for_each": "input.items"}],
    },
    source="map",
)
WAITING = read_document(
    {
        "name": "waiting",
        "nodes": [
            {"id": "a", "handler": "noop", "dependencies": []},
            {
                "id": "ok",
                "handler": "wait_for_signal",
                "config": {"signal": "go"},
                "dependencies": ["a"],
            },
        ],
    },
    source="waiting",
)


async def diamonds(backend: str, concurrency: int, *, count: int = 2_000) -> Figures:
    async with engine(backend, concurrency) as opened:
        started = time.perf_counter()
        submitted = await asyncio.gather(*[opened.client.submit(DIAMOND) for _ in range(count)])
        await asyncio.gather(*[opened.client.wait(execution_id) for execution_id in submitted])
        seconds = time.perf_counter() - started
    return {"diamonds_per_s": count / seconds, "nodes_per_s": 4 * count / seconds}


async def chain(backend: str, concurrency: int, *, count: int = 100) -> Figures:
    """Time per edge of a chain of 20, one execution at a time."""
    times = []
    async with engine(backend, concurrency) as opened:
        for _ in range(count):
            started = time.perf_counter()
            await opened.client.wait(await opened.client.submit(CHAIN))
            times.append((time.perf_counter() - started) / 20 * 1_000)
    times.sort()
    return {"edge_ms_p50": times[count // 2], "edge_ms_p99": times[count * 99 // 100]}


async def fan(backend: str, concurrency: int) -> Figures:
    async with engine(backend, concurrency) as opened:
        started = time.perf_counter()
        await opened.client.wait(await opened.client.submit(FAN))
        return {"fan_1000_s": time.perf_counter() - started}


async def maps(backend: str, concurrency: int) -> Figures:
    """Cost per item of a map, small and large."""
    figures: Figures = {}
    async with engine(backend, concurrency) as opened:
        for count in (1_000, 100_000):
            items = list(range(count))
            started = time.perf_counter()
            execution_id = await opened.client.submit(MAP, {"items": items})
            await opened.client.wait(execution_id)
            seconds = time.perf_counter() - started
            figures[f"map_{count}_us_per_item"] = seconds / count * 1e6
    return figures


async def waiting(backend: str, concurrency: int, *, count: int = 10_000) -> Figures:
    """Memory that executions cost while they wait for a signal."""
    async with engine(backend, concurrency) as opened:
        await opened.client.wait(await opened.client.submit(DIAMOND))
        before = _resident_mb()
        all_wait = _count_waiting(opened, count)
        ids = []
        for _ in range(count // 500):
            ids += await asyncio.gather(*[opened.client.submit(WAITING) for _ in range(500)])
        await all_wait.wait()
        after = _resident_mb()
        started = time.perf_counter()
        await asyncio.gather(*[opened.client.signal(each, "go") for each in ids])
        await asyncio.gather(*[opened.client.wait(each) for each in ids])
        seconds = time.perf_counter() - started
    return {"waiting_10000_mb": after - before, "wake_10000_s": seconds}


async def cold_start(*, count: int = 5) -> Figures:
    """`runnel run` of a three-node file from a shell, best and median."""
    document = {
        "name": "three",
        "nodes": [
            {"id": "a", "handler": "input"},
            {"id": "b", "handler": "output", "config": {"x": "{{ a }}"}},
            {"id": "c", "handler": "output", "config": {"x": "{{ b.x }}"}},
        ],
    }
    times = []
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        file = Path(folder) / "three.json"
        file.write_text(json.dumps(document))
        command = [sys.executable, "-m", "runnel", "run", str(file), "--json"]
        for number in range(count):
            started = time.perf_counter()
            subprocess.run(  # noqa: ASYNC221 - nothing else is to run meanwhile
                [*command, "--data-dir", f"{folder}/{number}"], check=True, capture_output=True
            )
            times.append(time.perf_counter() - started)
    times.sort()
    return {"cold_start_s_best": times[0], "cold_start_s_median": times[count // 2]}


def _count_waiting(opened: Engine, count: int) -> asyncio.Event:
    """Set when so many nodes have begun to wait."""
    reached = asyncio.Event()
    left = count

    def look(happened: Happened | Started) -> None:
        nonlocal left
        if isinstance(happened, Happened):
            left -= sum(isinstance(event, NodeWaits) for event in happened.events)
        if not left:
            reached.set()

    opened.hub.watch(look)
    return reached


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    return 0.0
