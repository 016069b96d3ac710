"""A running engine on any local backend, with handlers that tests can control."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, run_engine
from runnel.app.private_servers.redis import RedisServer
from runnel.app.wiring import build_engine, build_memory_engine
from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.client.protocol import load_whole_output
from runnel.core.events import NodeCompleted
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView
from tests.redis_server import flush_server

# The largest map takes 13 s, and 55 s while coverage is measured.
DEADLINE_S = 60.0 * float(os.environ.get("RUNNEL_BUDGET_FACTOR", "1"))
REDIS_PARTITIONS = 4


class WorkHandler:
    """The handler `work`. It counts calls by node id and returns its config by default."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running = 0
        self.running_most = 0
        self.failures: dict[str, list[Exception | None]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: dict[str, asyncio.Event] = {}
        self.cancelled: list[str] = []
        self.ended: list[str] = []
        self._delayed_ends: dict[str, asyncio.Event] = {}

    def gate(self, node_id: str) -> asyncio.Event:
        """Makes the node's code wait until the returned event is set."""
        self.gates[node_id] = asyncio.Event()
        self.entered[node_id] = asyncio.Event()
        return self.gates[node_id]

    def delay_end(self, node_id: str) -> asyncio.Event:
        """Makes the node's cancelled code run on until the returned event is set."""
        self._delayed_ends[node_id] = asyncio.Event()
        return self._delayed_ends[node_id]

    async def __call__(self, config: Json, ctx: Context) -> Json:
        self.calls.append(ctx.node_id)
        self.running += 1
        self.running_most = max(self.running, self.running_most)
        try:
            if ctx.node_id in self.gates:
                self.entered[ctx.node_id].set()
                await self.gates[ctx.node_id].wait()
            planned = self.failures.get(ctx.node_id)
            if planned and (error := planned.pop(0)) is not None:
                raise error
            return config or dict(ctx.inputs)
        except asyncio.CancelledError:
            self.cancelled.append(ctx.node_id)
            if ctx.node_id in self._delayed_ends:
                await self._delayed_ends[ctx.node_id].wait()
            raise
        finally:
            self.running -= 1
            self.ended.append(ctx.node_id)


def build_registry(
    work: WorkHandler, environment: HandlerEnvironment | None = None
) -> HandlerRegistry:
    handlers = create_builtin_registry(environment)

    async def call(config: Json, ctx: Context) -> Json:
        return await work(config, ctx)

    handlers.register("work", call)
    return handlers


@asynccontextmanager
async def open_engine(
    kind: str,
    folder: Path,
    work: WorkHandler,
    *,
    concurrency: int = 16,
    adopts: bool = False,
    cached_executions_max: int = 100,
    lease_s: float = 10.0,
    redis_url: str | None = None,
    environment: HandlerEnvironment | None = None,
    secrets: Mapping[str, str] | None = None,
) -> AsyncIterator[EmbeddedEngine]:
    """Runs an engine. On Redis it owns every partition that no other process owns."""
    settings = Settings(
        lease_s=lease_s,
        data_dir=folder,
        worker_concurrency=concurrency,
        shutdown_timeout_s=0.2,
        cached_executions_max=cached_executions_max,
        secrets=secrets or {},
    )
    handlers = build_registry(work, environment)
    if kind == "memory":
        engine = build_memory_engine(settings, handlers=handlers)
    elif kind == "redis":
        engine = await _build_redis_engine(redis_url or "", settings, handlers)
        adopts = True
    else:
        engine = await build_engine(settings, handlers=handlers)
    async with run_engine(engine, adopts=adopts):
        yield engine


def flush_redis(request: pytest.FixtureRequest) -> str:
    """Returns the URL of the shared Redis server, emptied of the data of earlier tests."""
    server: RedisServer = request.getfixturevalue("shared_redis")
    flush_server(server)
    return server.url


async def _build_redis_engine(
    url: str, settings: Settings, handlers: HandlerRegistry
) -> EmbeddedEngine:
    world = ClockAndIds(RealClock(), RandomIdGenerator())
    backend = await RedisBackend.open(
        url, RedisOptions(partitions=REDIS_PARTITIONS), clock=world.clock, ids=world.ids
    )
    return EmbeddedEngine(backend, handlers, world, settings)


async def run_to_end(
    engine: EmbeddedEngine, definition: Workflow, input_: Json = None
) -> ExecutionView:
    return await wait_for_end(engine, await engine.client.submit(definition, input_))


async def wait_for_end(engine: EmbeddedEngine, execution_id: ExecutionId) -> ExecutionView:
    await engine.client.wait_for_end(execution_id, timeout_s=DEADLINE_S)
    return await load_whole_output(engine.client, await engine.client.get(execution_id))


def watch_completion(engine: EmbeddedEngine, node_id: str) -> asyncio.Event:
    """Returns an event that is set once a commit has made the node COMPLETED."""
    completed = asyncio.Event()

    def set_on_completion(notice: CommittedEvents | StartedTask) -> None:
        if isinstance(notice, CommittedEvents):
            for event in notice.events:
                if isinstance(event, NodeCompleted) and event.node == node_id:
                    completed.set()

    engine.event_bus.watch(set_on_completion)
    return completed


def get_node_states(view: ExecutionView) -> dict[str, str]:
    return {node_id: str(node.status) for node_id, node in view.nodes.items()}
