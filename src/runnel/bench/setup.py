"""What a workload is given: a client, and how to learn of the end of what it submits."""

import asyncio
import math
import os
import platform
import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Protocol, TypeAlias

import runnel
from runnel.app.stores import StoreSession
from runnel.authoring.context import Context
from runnel.authoring.documents import read_document
from runnel.authoring.registry import HandlerRegistry
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock
from runnel.errors import NotFoundError, RunnelError
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.settings.variables import VARIABLES


class WrongEndError(RunnelError):
    """What was measured did not do its work: how long that took is no figure."""

    code = "wrong_end"

    def __init__(self, execution_id: ExecutionId, state: ExecutionState) -> None:
        super().__init__(f"execution {execution_id} ended as {state}: nothing was measured")


class CompletionWaiter(Protocol):
    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        """When it was known to be completed, on the monotonic clock; waits for that.

        Raises WrongEndError if it ended in another way.
        """


class BenchmarkDeployment(Protocol):
    """A deployment that is ready, and that nobody else uses."""

    client: StoreClient
    clock: Clock

    def watch_completions(
        self, *, pause_s: float = 0.0
    ) -> AbstractAsyncContextManager[CompletionWaiter]:
        """Of what is submitted within the block; they may be told so much later."""

    def pids(self) -> Mapping[str, Sequence[int]]:
        """The processes of each part that is measured, this one among them if it is a part."""


def check_completed(execution_id: ExecutionId, state: ExecutionState) -> None:
    """Raises WrongEndError."""
    if state is not ExecutionState.COMPLETED:
        raise WrongEndError(execution_id, state)


# What a measurement gives: numbers by name.

Figures: TypeAlias = dict[str, float]


def compute_percentile(values: Sequence[float], fraction: float) -> float:
    """The least of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def summarize_latency(name: str, seconds: Sequence[float]) -> Figures:
    """`name_ms_p50` and `name_ms_p99`."""
    return {
        f"{name}_ms_p50": 1_000 * compute_percentile(seconds, 0.5),
        f"{name}_ms_p99": 1_000 * compute_percentile(seconds, 0.99),
    }


def compute_medians(runs: Sequence[Mapping[str, float]]) -> Figures:
    """Of each figure; one that not every run has is left out."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: median(run[name] for run in runs) for name in names}


def compute_spreads(runs: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float]]:
    """The least and the most of each figure."""
    return {
        name: (min(run[name] for run in runs), max(run[name] for run in runs))
        for name in compute_medians(runs)
    }


# The handlers of what is measured: `runnel worker --app runnel.bench.setup:handlers`.

NAP_S = 0.05


async def noop(_config: Json, _ctx: Context) -> None:
    return None


async def nap(_config: Json, _ctx: Context) -> None:
    """Long enough to be at work when its worker is killed."""
    await RealClock().wait(asyncio.Event(), NAP_S)


handlers = HandlerRegistry()
handlers.register("noop", noop)
handlers.register("nap", nap)


# The workflows that are measured: their nodes do nothing.

CHAIN_NODES = 20
FAN_WIDTH = 1_000
# Forty layers of fifty nodes: each has three parents in the layer before it, a few have four.
LAYERS, LAYER_NODES = 40, 50
PARENT_OFFSETS: tuple[int, ...] = (0, 1, 7)
FOURTH_PARENT_OFFSET, FOURTH_PARENT_NODES = 13, 150

_DIAMOND_EDGES: Mapping[str, Sequence[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@cache
def build_diamond() -> Workflow:
    """a, then b and c, then d."""
    return _build_workflow("diamond", _DIAMOND_EDGES)


@cache
def build_napping_diamond() -> Workflow:
    """The same, of nodes that take a while: see `handlers.nap`."""
    return _build_workflow("napping", _DIAMOND_EDGES, handler="nap")


@cache
def build_chain() -> Workflow:
    """One node after another."""
    return _build_workflow(
        "chain", {f"n{i}": [f"n{i - 1}"] if i else [] for i in range(CHAIN_NODES)}
    )


@cache
def build_fan(width: int = FAN_WIDTH) -> Workflow:
    """One node, `width` behind it, and one behind all of these."""
    middle = [f"b{number}" for number in range(width)]
    return _build_workflow("fan", {"a": [], **{each: ["a"] for each in middle}, "z": middle})


@cache
def build_large_graph() -> Workflow:
    """2,000 nodes and 6,000 edges."""
    edges: dict[str, Sequence[str]] = {}
    for layer in range(LAYERS):
        for number in range(LAYER_NODES):
            offsets = PARENT_OFFSETS
            if 0 < (layer * LAYER_NODES + number) - LAYER_NODES + 1 <= FOURTH_PARENT_NODES:
                offsets = (*PARENT_OFFSETS, FOURTH_PARENT_OFFSET)
            parents = [f"n{layer - 1}_{(number + each) % LAYER_NODES}" for each in offsets]
            edges[f"n{layer}_{number}"] = parents if layer else []
    return _build_workflow("graph", edges)


@cache
def build_map() -> Workflow:
    """One node for each of the `items` of the input."""
    node: Json = {"id": "each", "handler": "noop", "for_each": "input.items"}
    return read_document({"name": "map", "nodes": [node]}, source="map")


@cache
def build_signal_wait() -> Workflow:
    """Waits for the signal `go`, then runs one node."""
    nodes: Json = [
        {"id": "ok", "handler": "wait_for_signal", "config": {"signal": "go"}, "dependencies": []},
        {"id": "after", "handler": "noop", "dependencies": ["ok"]},
    ]
    return read_document({"name": "waiting", "nodes": nodes}, source="waiting")


def _build_workflow(
    name: str, edges: Mapping[str, Sequence[str]], *, handler: str = "noop"
) -> Workflow:
    nodes = [
        {"id": node, "handler": handler, "dependencies": list(parents)}
        for node, parents in edges.items()
    ]
    return read_document({"name": name, "nodes": nodes}, source=name)


# Executions that are submitted at once, and waited for.

# Of many at once, the last end may be known so much later: a hundredth of half a second.
FEED_PAUSE_S = 0.005


async def run_all(deployment: BenchmarkDeployment, workflow: Workflow, count: int) -> float:
    """Seconds from the first submit to the last end, with everything submitted at once."""
    async with deployment.watch_completions(pause_s=FEED_PAUSE_S) as ends:
        started = deployment.clock.monotonic()
        ids = await asyncio.gather(*[deployment.client.submit(workflow) for _ in range(count)])
        ended = await asyncio.gather(*map(ends.wait_until_completed, ids))
    return max(ended) - started


async def run_one(
    deployment: BenchmarkDeployment, workflow: Workflow, input_: Json = None
) -> float:
    """Seconds from its submit to its end."""
    async with deployment.watch_completions() as ends:
        started = deployment.clock.monotonic()
        return (
            await ends.wait_until_completed(await deployment.client.submit(workflow, input_))
            - started
        )


async def run_sequentially(
    deployment: BenchmarkDeployment, workflow: Workflow, count: int
) -> list[float]:
    """Seconds of each, one at a time."""
    async with deployment.watch_completions() as ends:
        seconds = []
        for _ in range(count):
            started = deployment.clock.monotonic()
            seconds.append(
                await ends.wait_until_completed(await deployment.client.submit(workflow)) - started
            )
    return seconds


# How executions end that other processes run: told by the feed, as a follower of all of them is.
#
# One reader for all: a wait for each of 2,000 would be 4,000 looks at the store that is measured.

FEED_PAGE_LIMIT = 1_000
FEED_WAIT_S = 5.0
LOOKUP_BATCH = 50


class FeedCompletionWaiter:
    """With `pause_s`, a moment is let pass after each page, so that the next one is larger: with 4
    slots, hearing of each commit by itself took 15 % of the processor time of a whole deployment.
    """

    def __init__(self, stores: StoreSession, pause_s: float) -> None:
        self._stores = stores
        self._pause_s = pause_s
        self._completions: dict[str, tuple[float, ExecutionState]] = {}
        self._waiters: dict[str, asyncio.Future[tuple[float, ExecutionState]]] = {}

    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        found = self._completions.get(execution_id)
        if found is None:
            waiting = self._waiters.get(execution_id)
            if waiting is None:
                waiting = self._waiters[execution_id] = asyncio.get_running_loop().create_future()
            found = await waiting
        at, state = found
        check_completed(execution_id, state)
        return at

    @asynccontextmanager
    async def follow_feed(self) -> AsyncIterator["FeedCompletionWaiter"]:
        feed, clock = self._stores.backend.feed, self._stores.clock
        position = await feed.end()

        async def read() -> None:
            after = position
            while True:
                page = await feed.read(after, limit=FEED_PAGE_LIMIT, wait_s=FEED_WAIT_S)
                after = page.position
                await self._apply_page(page)
                if self._pause_s:
                    await clock.sleep(self._pause_s)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            try:
                yield self
            finally:
                reading.cancel()

    async def _apply_page(self, page: FeedPage) -> None:
        """What was told while this reader was behind is looked up; what comes later is told."""
        now = self._stores.clock.monotonic()
        for change in page.changes:
            if change.state in FINAL_EXECUTION_STATES:
                self._record_completion(change.execution_id, now, change.state)
        if page.has_gap:
            ids = list(self._waiters)
            for first in range(0, len(ids), LOOKUP_BATCH):
                some = ids[first : first + LOOKUP_BATCH]
                await asyncio.gather(*[self._check_execution(ExecutionId(each)) for each in some])

    def _record_completion(self, execution_id: str, at: float, state: ExecutionState) -> None:
        self._completions[execution_id] = at, state
        waiting = self._waiters.pop(execution_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result((at, state))

    async def _check_execution(self, execution_id: ExecutionId) -> None:
        try:
            header = await self._stores.client.get_header(execution_id)
        except NotFoundError:
            return
        if header.state in FINAL_EXECUTION_STATES:
            self._record_completion(execution_id, self._stores.clock.monotonic(), header.state)


# Another process of Runnel, without the settings of this one.


def clean_environment(
    environ: Mapping[str, str], import_from: Sequence[Path] = ()
) -> dict[str, str]:
    """That of this process without any setting of Runnel, and with these.

    Another process that gets it runs the same code, wherever it runs, and finds what is in the
    folders `import_from`.
    """
    kept = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    source = Path(runnel.__file__).resolve().parents[1]
    folders = [*map(str, (source, *import_from)), *filter(None, [kept.get("PYTHONPATH")])]
    path = os.pathsep.join(folders)
    return {**kept, "PYTHONPATH": path, **environ}


# What a process uses, as the kernel counts it; nothing where there is no /proc.

PROC = Path("/proc")


def read_resident_mb(pid: int | str = "self") -> float | None:
    """The memory that it has now."""
    return _read_status_mb(pid, "VmRSS:")


def read_peak_mb(pid: int | str = "self") -> float | None:
    """The most that it ever had."""
    return _read_status_mb(pid, "VmHWM:")


def read_cpu_s(pids: Iterable[int]) -> float:
    """All that they have used up, of their own and of the system."""
    return sum(map(_read_process_cpu_s, pids))


def _read_process_cpu_s(pid: int) -> float:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_status_mb(pid: int | str, name: str) -> float | None:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith(name)), None)


# Where and with what was measured.

PACKAGES = {"msgspec": "msgspec", "redis-py": "redis", "hiredis": "hiredis", "asyncpg": "asyncpg"}


def describe_machine() -> dict[str, str | int | float]:
    """`load` is that of the last minute: figures of a busy machine are to be read with care."""
    return {
        "runnel": runnel.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: found for name, package in PACKAGES.items() if (found := _find_version(package))},
        "system": platform.platform(),
        "processor": _read_processor_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else _count_cores(),
        "load": round(os.getloadavg()[0], 2),
    }


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _count_cores() -> int:
    return os.cpu_count() or 1


def _read_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
