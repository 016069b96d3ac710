"""The embedded engine: orchestrator, worker and store in one process, opened as one thing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeAlias, TypeVar

import msgspec

from runnel.app.secrets import secrets_of_worker
from runnel.authoring.registry import HandlerRegistry
from runnel.client.store_client import Client
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Policy, RateLimit
from runnel.engine.orchestrator import Parts
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker
from runnel.notify.feed_reader import Newsroom
from runnel.notify.hub import Hub
from runnel.ports import Backend
from runnel.ports.clock import Clock, Ids, Secrets
from runnel.ports.store import Lease
from runnel.settings.model import Settings

Adopts: TypeAlias = bool | frozenset[int]
"""Which partitions of others an engine takes over as they become free: all, none, or these."""


class World(msgspec.Struct, frozen=True):
    """Time and chance, as one argument."""

    clock: Clock
    ids: Ids


class Stops(msgspec.Struct, frozen=True):
    """Set `gently` to drain and end; `now` ends at once what `gently` would have waited for."""

    gently: asyncio.Event
    now: asyncio.Event


class Engine:
    """Runs while it is open; `client` is how to talk to it."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        world: World,
        settings: Settings,
        *,
        rate_limits: Mapping[str, RateLimit] | None = None,
        policy: Policy | None = None,
        name: str | None = None,
        claim_ahead: int = 0,
    ) -> None:
        self.hub = Hub()
        self.backend = backend
        self.clock = world.clock
        self.stops = Stops(asyncio.Event(), asyncio.Event())
        self.secrets: Secrets = secrets_of_worker(settings)
        self.newsroom = Newsroom(backend.feed, world.clock, self.hub)
        self.client = Client(
            backend,
            world.clock,
            world.ids,
            ending_of=self.hub.ending,
            owns=self._owns,
            listen=self.newsroom.listen_for_end,
        )
        self.name = name or f"engine-{world.ids.nonce()}"
        self._home: int | None = None
        self._adopts: Adopts = False
        self._works = True
        self._settings = settings
        self._orchestrator = self._build_orchestrator(
            world,
            policy
            or Policy(losses_max=settings.losses_max, keeps_exhausted=settings.keeps_exhausted),
        )
        self._worker = Worker(
            backend.tasks,
            backend.blobs,
            handlers,
            world.clock,
            self.hub,
            name=self.name,
            concurrency=settings.worker_concurrency,
            claim_ahead=claim_ahead,
            beat_s=settings.heartbeat_interval_s,
            shutdown_s=settings.shutdown_timeout_s,
            rate_limits=rate_limits or {},
            secrets=self.secrets,
        )

    def _build_orchestrator(self, world: World, policy: Policy) -> Orchestrator:
        parts = Parts(
            store=self.backend.store,
            archive=self.backend.archive,
            blobs=self.backend.blobs,
            clock=world.clock,
            ids=world.ids,
            telemetry=self.hub,
            policy=policy,
            cached_executions_max=self._settings.cached_executions_max,
        )
        return Orchestrator(
            parts, name=self.name, wanted=self._wanted, lease_s=self._settings.lease_s
        )

    def _owns(self, partition: int) -> bool:
        return self._orchestrator.owns(partition)

    def leases(self) -> Sequence[Lease]:
        """Of the partitions that this engine owns now."""
        return self._orchestrator.leases()

    @property
    def recovered(self) -> asyncio.Event:
        """Set once all partitions that were free when `run` began have been brought to life."""
        return self._orchestrator.recovered

    async def _wanted(self) -> Sequence[int]:
        """Its own partition when it works, and those that it adopts.

        All others, not only those with unfinished executions: one whose process died before it
        saw the first command has nothing but an inbox.
        """
        if self._works:
            await self.claim_home()
        own = [] if self._home is None else [self._home]
        if isinstance(self._adopts, frozenset):
            others = sorted(self._adopts)
        else:
            others = list(await self.backend.store.partitions()) if self._adopts else []
        return own + [partition for partition in others if partition != self._home]

    async def adopt_if_free(self, execution_id: ExecutionId) -> None:
        """Goes on with an execution, at the next look around, if no living process has it."""
        store = self.backend.store
        partition = await store.route(execution_id)
        if isinstance(self._adopts, frozenset) and await store.observe(partition) is None:
            self._adopts |= {partition}

    async def claim_home(self) -> None:
        """Before the first submit: from then on, new executions go to this engine's partition."""
        if self._home is None:
            self._home = await self.backend.claim_home(self.name)

    async def run(self, *, adopts: Adopts = False, works: bool = True) -> None:
        """Until `stops.gently` is set: the worker drains first, then the orchestrator.

        Without `works` no user code is run: commands of the adopted partitions take effect, and
        the tasks that they issue wait for the next engine.
        """
        self._adopts = adopts
        self._works = works
        drained = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._orchestrator.run(drained))
            if works:
                await self._worker.run(self.stops.gently, self.stops.now)
            else:
                await self.stops.gently.wait()
            drained.set()


@asynccontextmanager
async def running(engine: Engine, *, adopts: Adopts = False) -> AsyncIterator[Engine]:
    """The engine works inside the block, and is drained and closed after it."""
    try:
        await engine.claim_home()
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(adopts=adopts))
            try:
                yield engine
            finally:
                engine.stops.gently.set()
    finally:
        await engine.backend.close()


# Something open that concurrent calls on one event loop share: the last one closes it.

T = TypeVar("T")
Open: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]


class Shared(Generic[T]):
    """Stays open until it is released; `error` is what ended it before that, `over` that it did."""

    def __init__(self, open_: Open[T]) -> None:
        self.users = 0
        self.error: Exception | None = None
        self.over = asyncio.Event()
        self._open = open_
        self._opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()

    async def run(self) -> None:
        try:
            async with self._open() as opened:
                self._opened.set_result(opened)
                await self._released.wait()
        except Exception as error:  # noqa: BLE001  # raised by all who wait for this
            self.error = error
        finally:
            self._opened.cancel()
            self.over.set()

    async def opened(self) -> T:
        await asyncio.wait([self._opened])
        if self.error is not None:
            raise self.error
        return self._opened.result()

    def release(self) -> None:
        self._released.set()


class Sharing(Generic[T]):
    """Opens for the first user on an event loop, and closes after the last one."""

    def __init__(self) -> None:
        self._running: dict[asyncio.AbstractEventLoop, tuple[Shared[T], asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def use(self, open_: Open[T]) -> AsyncIterator[Shared[T]]:
        """Raises what ended it, unless the block has raised already."""
        loop = asyncio.get_running_loop()
        shared, task = self._join(loop, open_)
        shared.users += 1
        try:
            yield shared
        finally:
            shared.users -= 1
            if not shared.users:
                if self._running.get(loop) == (shared, task):
                    del self._running[loop]
                shared.release()
                await asyncio.wait([task])
        if shared.error is not None:
            raise shared.error

    def _join(
        self, loop: asyncio.AbstractEventLoop, open_: Open[T]
    ) -> tuple[Shared[T], "asyncio.Task[None]"]:
        found = self._running.get(loop)
        if found is None or found[1].done():
            shared = Shared(open_)
            # Not in a group: it outlives the call that opened it while another one needs it.
            found = self._running[loop] = shared, loop.create_task(shared.run())
        return found
