"""The engine that concurrent `execute` calls of one executor share, one per event loop."""

import asyncio
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
from runnel.errors import UnknownExecutionError
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
    """Runs an engine until it is released; `error` is what ended it before that."""

    def __init__(self, options: Options) -> None:
        self.users = 0
        self.error: Exception | None = None
        self._lives: dict[str, LiveExecution] = {}
        self._options = options
        self._opened: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()
        self._is_over = False

    async def run(self) -> None:
        try:
            engine = await self._open()
            engine.hub.watch(self._watch)
            async with running(engine):
                self._opened.set_result(engine)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  # raised by all who wait for this engine
            self.error = error
        finally:
            self._opened.cancel()
            self._is_over = True
            for live in self._lives.values():
                live.finished.set()

    async def engine(self) -> Engine:
        await asyncio.wait([self._opened])
        if self.error is not None:
            raise self.error
        return self._opened.result()

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

    def release(self) -> None:
        self._released.set()

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


class Hosts:
    """Opens a host for the first user on an event loop, and ends it after the last one."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._running: dict[asyncio.AbstractEventLoop, tuple[Host, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Host]:
        """Raises what ended the engine, unless the block has raised already."""
        loop = asyncio.get_running_loop()
        host, task = self._join(loop)
        host.users += 1
        try:
            yield host
        finally:
            host.users -= 1
            if not host.users:
                if self._running.get(loop) == (host, task):
                    del self._running[loop]
                host.release()
                await asyncio.wait([task])
        if host.error is not None:
            raise host.error

    def _join(self, loop: asyncio.AbstractEventLoop) -> tuple[Host, asyncio.Task[None]]:
        found = self._running.get(loop)
        if found is None or found[1].done():
            host = Host(self._options)
            # Not in a group: it outlives the call that opened it while another one needs it.
            found = self._running[loop] = host, loop.create_task(host.run())
        return found
