"""Measurements on an engine in this process, and of cold starts of `runnel run`."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias

from runnel.app.embedded_engine import EmbeddedEngine, run_engine
from runnel.app.wiring import build_engine, build_memory_engine
from runnel.bench.deployment import CompletionWaiter, check_completed, clean_environment
from runnel.bench.figures import Figures
from runnel.bench.functions import FunctionKind
from runnel.bench.report import Measured, measure
from runnel.bench.workflows import handlers
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.errors import ServerFailedError
from runnel.handlers import create_builtin_registry
from runnel.ports.clock import Clock
from runnel.settings.model import Settings

StorageMode: TypeAlias = Literal["memory", "process", "power"]
"""In memory; in SQLite safe against the death of the process; or against a power cut too."""


class EmbeddedDeployment:
    """A deployment that consists of an engine in this process."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.client: StoreClient = engine.client
        self.clock: Clock = engine.clock

    @asynccontextmanager
    async def watch_completions(self, *, pause_s: float = 0.0) -> AsyncIterator[CompletionWaiter]:
        yield ClientCompletionWaiter(self.client, self.clock)

    def pids(self) -> Mapping[str, Sequence[int]]:
        return {"engine": [os.getpid()]}


class ClientCompletionWaiter:
    """Waits for executions with the client, which the engine notifies without a read of
    the store.
    """

    def __init__(self, client: StoreClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def wait_until_completed(self, execution_id: ExecutionId) -> float:
        header = await self._client.wait_for_end(execution_id)
        at = self._clock.monotonic()
        check_completed(execution_id, header.state)
        return at


@asynccontextmanager
async def open_embedded_deployment(
    storage_mode: StorageMode, concurrency: int
) -> AsyncIterator[EmbeddedDeployment]:
    registry = create_builtin_registry()
    registry.include(handlers)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        settings = Settings(
            data_dir=Path(folder),
            worker_concurrency=concurrency,
            durability="power" if storage_mode == "power" else "process",
        )
        if storage_mode == "memory":
            engine = build_memory_engine(settings, handlers=registry)
        else:
            engine = await build_engine(settings, handlers=registry)
        async with run_engine(engine):
            yield EmbeddedDeployment(engine)


async def measure_embedded(
    workload: str,
    storage_mode: StorageMode,
    *,
    concurrency: int,
    count: int,
    repetitions: int,
    functions: FunctionKind = "sync",
) -> Measured:
    async with open_embedded_deployment(storage_mode, concurrency) as deployment:
        return await measure(
            workload, deployment, count=count, repetitions=repetitions, functions=functions
        )


# The time of `runnel run` of three nodes, from the start of the process to its exit.

THREE_NODE_WORKFLOW = {
    "name": "three",
    "nodes": [
        {"id": "a", "handler": "input"},
        {"id": "b", "handler": "output", "config": {"x": "{{ a }}"}},
        {"id": "c", "handler": "output", "config": {"x": "{{ b.x }}"}},
    ],
}


async def measure_cold_starts(clock: Clock, count: int) -> Figures:
    """Measures `count` cold starts of `runnel run`, each with a new data directory.

    No other program should run on the machine during the measurement.
    """
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        file = Path(folder) / "three.json"
        file.write_text(json.dumps(THREE_NODE_WORKFLOW), encoding="utf-8")
        seconds = [
            await _measure_cold_start(clock, file, Path(folder) / str(n)) for n in range(count)
        ]
    return {"cold_start_s": median(seconds), "cold_start_s_best": min(seconds)}


async def _measure_cold_start(clock: Clock, file: Path, data_dir: Path) -> float:
    started = clock.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runnel", "run", str(file), "--json"),
        *("--data-dir", str(data_dir)),
        env=clean_environment({}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, log = await process.communicate()
    if process.returncode:
        raise ServerFailedError(
            "run", f"ended with exit code {process.returncode}", log=log.decode()
        )
    return clock.monotonic() - started
