"""A memory backend and the owner of its one partition: no worker, no real time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from runnel.backends.memory import MemoryBackend
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId
from runnel.core.values import Json, make_inline_value
from runnel.core.workflow import EnginePolicy, Workflow, encode_workflow, hash_workflow
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.aggregates import CachedExecutionsLimit
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.ports.store import CommitLimits, ExecutionHeader
from runnel.testing.clock import FakeClock, FakeIds
from tests.unit.engine.worker.worker_harness import RecordingTelemetry

LEASE_S = 9.0


class OrchestratorHarness:
    def __init__(
        self,
        *,
        limits: CommitLimits | None = None,
        policy: EnginePolicy | None = None,
        partitions: int = 1,
    ) -> None:
        self.clock = FakeClock()
        self.backend = MemoryBackend(
            self.clock, FakeIds(), partitions, limits=limits or CommitLimits()
        )
        self.telemetry = RecordingTelemetry()
        self.stop = asyncio.Event()
        self.parts = OrchestratorDependencies(
            store=self.backend.store,
            archive=self.backend.archive,
            blobs=self.backend.blobs,
            clock=self.clock,
            ids=FakeIds("o"),
            telemetry=self.telemetry,
            policy=policy or EnginePolicy(),
            idle_s_max=60.0,
        )

    async def owner(self) -> PartitionOwner:
        lease = await self.backend.store.acquire(0, "test")
        return PartitionOwner(
            self.parts, GraphCache(self.backend.archive), lease, CachedExecutionsLimit(5_000)
        )

    @asynccontextmanager
    async def orchestrating(self, *partitions: int) -> AsyncIterator[Orchestrator]:
        """Runs an orchestrator for these partitions, or for the first; it stops at the end of the
        block.
        """

        async def wanted() -> Sequence[int]:
            return partitions or (0,)

        orchestrator = Orchestrator(
            self.parts, name="me", choose_partitions=wanted, lease_s=LEASE_S
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(orchestrator.run(self.stop))
            try:
                yield orchestrator
            finally:
                self.stop.set()

    async def create(
        self, definition: Workflow, name: str = "x1", *, input_: Json = None
    ) -> ExecutionId:
        hash_ = hash_workflow(definition)
        document = encode_workflow(definition)
        await self.backend.archive.put_definition(definition.name, hash_, document)
        command = CreateExecution(
            execution_id=ExecutionId(name),
            workflow=definition.name,
            definition=hash_,
            version=1,
            input=make_inline_value({} if input_ is None else input_),
            created_at=1.0,
        )
        await self.backend.mailbox.send([command])
        return ExecutionId(name)

    async def header(self, execution_id: ExecutionId) -> ExecutionHeader:
        header = await self.backend.archive.get_header(execution_id)
        assert header is not None, f"{execution_id} is not listed"
        return header
