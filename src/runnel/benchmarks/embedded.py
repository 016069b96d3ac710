"""An engine in this process: in memory, or with SQLite in a folder of its own."""

import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from runnel.benchmarks.handlers import handlers
from runnel.benchmarks.site import Ends, check_completed
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.handlers import builtin_registry
from runnel.ports.clock import Clock
from runnel.runtime.build import build_engine
from runnel.runtime.build_memory import build_memory_engine
from runnel.runtime.engine import Engine, running
from runnel.settings import Settings

Storing: TypeAlias = Literal["memory", "process", "power"]
"""Nowhere; or in SQLite, safe against the death of the process, or of the machine."""


class EmbeddedSite:
    def __init__(self, engine: Engine) -> None:
        self.client: Client = engine.client
        self.clock: Clock = engine.clock

    @asynccontextmanager
    async def ends(self, *, rest_s: float = 0.0) -> AsyncIterator[Ends]:
        yield WaitedEnds(self.client, self.clock)

    def pids(self) -> Mapping[str, Sequence[int]]:
        return {"engine": [os.getpid()]}


class WaitedEnds:
    """By the client itself: in one process that is told, and needs no look."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def ended(self, execution_id: ExecutionId) -> float:
        header = await self._client.wait(execution_id)
        at = self._clock.monotonic()
        check_completed(execution_id, header.state)
        return at


@asynccontextmanager
async def embedded(storing: Storing, concurrency: int) -> AsyncIterator[EmbeddedSite]:
    registry = builtin_registry()
    registry.include(handlers)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        settings = Settings(
            data_dir=Path(folder),
            worker_concurrency=concurrency,
            durability="power" if storing == "power" else "process",
        )
        if storing == "memory":
            engine = build_memory_engine(settings, handlers=registry)
        else:
            engine = await build_engine(settings, handlers=registry)
        async with running(engine):
            yield EmbeddedSite(engine)
