"""The embedded engine: orchestrator, worker and store in one process."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import msgspec

from runnel.app.secrets import load_worker_secrets
from runnel.authoring.registry import HandlerRegistry
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.workflow import EnginePolicy, RateLimit
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker, WorkerOptions
from runnel.errors import EngineEndedError
from runnel.notify.event_bus import EventBus
from runnel.notify.feed_reader import FeedReader
from runnel.ports import Backend
from runnel.ports.clock import Clock, IdGenerator, Secrets
from runnel.ports.store import Lease
from runnel.settings.model import Settings

AdoptedPartitions: TypeAlias = bool | frozenset[int]
"""The free partitions that an engine takes over: all (True), none (False), or a set."""


class ClockAndIds(msgspec.Struct, frozen=True):
    """The clock and the id generator of a process."""

    clock: Clock
    ids: IdGenerator


class StopEvents(msgspec.Struct, frozen=True):
    """`drain` lets running tasks finish and then stops; `abort` cancels them at once."""

    drain: asyncio.Event
    abort: asyncio.Event


class EmbeddedEngine:
    """An orchestrator and a worker on one backend; `client` submits executions to them."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        clock_and_ids: ClockAndIds,
        settings: Settings,
        *,
        rate_limits: Mapping[str, RateLimit] | None = None,
        policy: EnginePolicy | None = None,
        name: str | None = None,
        claim_ahead: int = 0,
    ) -> None:
        self.event_bus = EventBus()
        self.backend = backend
        self.clock = clock_and_ids.clock
        self.stops = StopEvents(asyncio.Event(), asyncio.Event())
        self.secrets: Secrets = load_worker_secrets(settings)
        self.feed_reader = FeedReader(backend.feed, clock_and_ids.clock, self.event_bus)
        graphs = GraphCache(backend.archive)
        self.client = StoreClient(
            backend,
            clock_and_ids.clock,
            clock_and_ids.ids,
            get_completion=self.event_bus.get_completion,
            owns=self._owns,
            feed_reader=self.feed_reader,
            graphs=graphs,
            mocks_services=settings.mocks_services,
        )
        self.name = name or f"engine-{clock_and_ids.ids.nonce()}"
        self._home_partition: int | None = None
        self._adopts: AdoptedPartitions = False
        self._runs_tasks = True
        self._settings = settings
        self._orchestrator = self._build_orchestrator(
            clock_and_ids,
            graphs,
            policy
            or EnginePolicy(
                crashes_max=settings.crashes_max, keeps_exhausted_tasks=settings.keeps_exhausted
            ),
        )
        self._worker = Worker(
            backend.tasks,
            backend.blobs,
            handlers,
            clock_and_ids.clock,
            self.event_bus,
            name=self.name,
            options=WorkerOptions(
                concurrency=settings.worker_concurrency,
                claim_ahead=claim_ahead,
                beat_s=settings.heartbeat_interval_s,
                shutdown_s=settings.shutdown_timeout_s,
                rate_limits=rate_limits or {},
            ),
            secrets=self.secrets,
        )

    def _build_orchestrator(
        self, clock_and_ids: ClockAndIds, graphs: GraphCache, policy: EnginePolicy
    ) -> Orchestrator:
        parts = OrchestratorDependencies(
            store=self.backend.store,
            archive=self.backend.archive,
            blobs=self.backend.blobs,
            clock=clock_and_ids.clock,
            ids=clock_and_ids.ids,
            telemetry=self.event_bus,
            policy=policy,
            graphs=graphs,
            cached_executions_max=self._settings.cached_executions_max,
        )
        return Orchestrator(
            parts,
            name=self.name,
            choose_partitions=self._choose_partitions,
            lease_s=self._settings.lease_s,
        )

    def _owns(self, partition: int) -> bool:
        return self._orchestrator.owns(partition)

    @property
    def adopts_all(self) -> bool:
        """True if the engine takes over every free partition, also while it runs."""
        return self._adopts is True

    def leases(self) -> Sequence[Lease]:
        """Returns the leases of the partitions that this engine owns now."""
        return self._orchestrator.leases()

    @property
    def recovered(self) -> asyncio.Event:
        """Returns the event that is set once all partitions that were free at the start of `run`
        are recovered.
        """
        return self._orchestrator.recovered

    async def _choose_partitions(self) -> Sequence[int]:
        """Returns the home partition if the engine runs tasks, and the partitions to adopt.

        `adopts=True` means all partitions with work. The engine gives up a partition whose last
        execution has ended, so that the next process can use it as its home. Otherwise each restart
        of a process beside a living one would add a partition.
        """
        if self._runs_tasks:
            await self.claim_home_partition()
        own = [] if self._home_partition is None else [self._home_partition]
        if isinstance(self._adopts, frozenset):
            adopted = sorted(self._adopts)
        else:
            adopted = list(await self.backend.store.partitions_with_work()) if self._adopts else []
        return own + [partition for partition in adopted if partition != self._home_partition]

    async def adopt_if_free(self, execution_id: ExecutionId) -> None:
        """Adopts the partition of an execution if no living process owns it.

        The engine resumes the execution when it next chooses its partitions.
        """
        store = self.backend.store
        partition = await store.route(execution_id)
        if isinstance(self._adopts, frozenset) and await store.observe(partition) is None:
            self._adopts |= {partition}

    async def claim_home_partition(self) -> None:
        """Claims a partition for new executions; must be called before the first submit."""
        if self._home_partition is None:
            self._home_partition = await self.backend.claim_home_partition(self.name)

    async def run(self, *, adopts: AdoptedPartitions = False, runs_tasks: bool = True) -> None:
        """Runs until `stops.drain` is set: the worker drains first, then the orchestrator.

        Without `runs_tasks` no user code runs. Commands of the adopted partitions take effect, and
        the tasks that they issue wait for the next engine.
        """
        self._adopts = adopts
        self._runs_tasks = runs_tasks
        drained = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._orchestrator.run(drained))
            if runs_tasks:
                await self._worker.run(self.stops.drain, self.stops.abort)
            else:
                await self.stops.drain.wait()
            drained.set()


class Service(Protocol):
    """A background duty of a process, such as the scheduler; see also `engine/services`."""

    async def run(self, stop: asyncio.Event) -> None: ...


@asynccontextmanager
async def run_engine(
    engine: EmbeddedEngine, *, adopts: AdoptedPartitions = False, services: Sequence[Service] = ()
) -> AsyncIterator[EmbeddedEngine]:
    """Runs the engine inside the block; afterwards drains it and closes its backend.

    Ends the block with EngineEndedError if the engine ends first.
    """
    has_left = asyncio.Event()

    async def run() -> None:
        await engine.run(adopts=adopts)
        if not has_left.is_set():
            raise EngineEndedError(reason="its worker was drained")

    try:
        await engine.claim_home_partition()
        async with asyncio.TaskGroup() as group:
            group.create_task(run())
            for service in services:
                group.create_task(service.run(engine.stops.drain))
            try:
                yield engine
            finally:
                has_left.set()
                engine.stops.drain.set()
    finally:
        await engine.backend.close()
