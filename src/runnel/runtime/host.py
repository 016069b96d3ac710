"""The engine that concurrent `execute` calls of one executor share, one per event loop."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runnel.authoring.builder import STEP_HANDLER
from runnel.authoring.calls import Call, ContextPlace, Mode
from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.backends.memory import MemoryBackend
from runnel.backends.sqlite import SqliteBackend
from runnel.core.json_types import Json
from runnel.core.workflow import RateLimit
from runnel.errors import BrokenInvariantError, UnknownExecutionError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import Engine, World, running
from runnel.runtime.hub import Happened, Started
from runnel.runtime.limited_backend import LimitedBackend
from runnel.runtime.live import LiveExecution
from runnel.runtime.rate_limiter import TokenBucketRateLimiter
from runnel.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`data_dir` None keeps everything in memory."""

    max_concurrency: int = 4
    limiters: Mapping[str, TokenBucketRateLimiter] = field(default_factory=dict)
    data_dir: Path | None = None
    clock: Clock = field(default_factory=RealClock)


class Host:
    """An engine whose tasks find their functions in the executions that are served here."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lives: dict[str, LiveExecution] = {}
        self._engine: Engine | None = None
        self._is_over = False

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise BrokenInvariantError("an engine was asked for before it was opened")
        return self._engine

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Host"]:
        try:
            self._engine = await self._open()
            self._engine.hub.watch(self._watch)
            async with running(self._engine):
                yield self
        finally:
            self._is_over = True
            for live in self._lives.values():
                live.finished.set()

    @contextmanager
    def serving(self, execution_id: str, live: LiveExecution) -> Iterator[None]:
        """Inside the block, the tasks of the execution find their functions in `live`."""
        self._lives[execution_id] = live
        if self._is_over:
            live.finished.set()
        try:
            yield
        finally:
            del self._lives[execution_id]

    async def _open(self) -> Engine:
        options = self._options
        world = World(options.clock, RealIds())
        settings = Settings(worker_concurrency=options.max_concurrency, shutdown_timeout_s=0.0)
        backend: Backend
        if options.data_dir is None:
            backend = MemoryBackend(world.clock, world.ids)
        else:
            backend = await SqliteBackend.open(
                options.data_dir, clock=world.clock, ids=world.ids, durability=settings.durability
            )
        limits = {
            tag: RateLimit(rate_per_second=limiter.rate_per_second, burst=limiter.burst)
            for tag, limiter in options.limiters.items()
        }
        if limits:
            backend = LimitedBackend(backend, options.limiters)
        return Engine(backend, self._registry(), world, settings, rate_limits=limits)

    def _registry(self) -> HandlerRegistry:
        registry = HandlerRegistry()
        registry.register_plan(STEP_HANDLER, self._plan, source="WorkflowDAG")
        return registry

    def _plan(self, config: Json) -> Call:
        mode = Mode(config["mode"])
        function = self._run if mode is Mode.LOOP else self._run_in_thread
        return Call(function=function, mode=mode, place=ContextPlace.LAST)

    async def _run(self, task: Context) -> Json:
        return await self._live(task).run(task)

    def _run_in_thread(self, task: Context) -> Json:
        return self._live(task).run_in_thread(task)

    def _live(self, task: Context) -> LiveExecution:
        live = self._lives.get(task.execution_id)
        if live is None:
            raise UnknownExecutionError(task.execution_id)
        return live

    def _watch(self, news: Happened | Started) -> None:
        if isinstance(news, Started):
            live = self._lives.get(news.token.execution_id)
            if live is not None:
                live.started(news.token.node_id, news.at)
        elif (live := self._lives.get(news.execution_id)) is not None:
            live.happened(news.events)
