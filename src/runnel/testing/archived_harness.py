"""The accidents of a backend of two servers, whose archive is brought up to date at each commit."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from runnel.backends.archived import ArchivedBackend
from runnel.engine.services.archiver import Archiver
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import Commit, Lease, LeaseRecord, Store
from runnel.ports.telemetry import Telemetry
from runnel.testing.redis_harness import RedisHarness


class ArchivedHarness(RedisHarness):
    def __init__(self, backend: ArchivedBackend, clock: Clock, telemetry: Telemetry) -> None:
        super().__init__(backend.redis)
        self.backend: Backend = backend
        backend.store = cast("Store", FlushedStore(backend, clock, telemetry))


class FlushedStore:
    """Any: each other attribute is a method of the store behind it."""

    def __init__(self, backend: ArchivedBackend, clock: Clock, telemetry: Telemetry) -> None:
        self._store = backend.store
        self._leases: dict[int, Lease] = {}
        self._archiver = Archiver(
            backend.journal,
            backend.ledger,
            clock,
            telemetry,
            hot_blobs=backend.hot_blobs,
            cold_blobs=backend.cold_blobs,
            leases=lambda: list(self._leases.values()),
        )

    async def acquire(
        self, partition: int, owner: str, *, over: LeaseRecord | None = None
    ) -> Lease:
        lease = await self._store.acquire(partition, owner, over=over)
        self._leases[partition] = lease
        return await self._store.restore(lease)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._store.commit(lease, commit)
        await self._archiver.tick()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        found: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        return found
