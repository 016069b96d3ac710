"""Harnesses that inject faults into Redis, with and without PostgreSQL.

This module is separate because it imports hiredis, which is an optional dependency.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis_postgres.backend import RedisPostgresBackend
from runnel.engine.services.archiver import Archiver
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import Commit, Lease, LeaseRecord, Store
from runnel.ports.telemetry import Telemetry


class RedisHarness:
    def __init__(self, backend: RedisBackend) -> None:
        self.backend: Backend = backend
        self._pool = backend.pool
        self._keys = backend.keys

    async def abandon_lease(self, lease: Lease) -> None:
        """Does nothing: the lease of a dead owner stays in Redis, but its counter no longer
        changes.
        """

    async def inject_message(self, partition: int, body: bytes) -> None:
        await self._pool.call("XADD", f"{self._keys.inbox}{partition}", "*", "m", body)

    async def advance_time(self, seconds: float) -> None:
        """Moves all stored times back, which has the same effect as passing time."""
        for key in await self._pool.call("KEYS", self._keys.window + "*"):
            for member in await self._pool.call("ZRANGE", key, 0, -1):
                await self._pool.call("ZINCRBY", key, round(-1_000_000 * seconds), member)
        for key in await self._pool.call("KEYS", self._keys.bucket + "*"):
            full_at = float(await self._pool.call("GET", key))
            await self._pool.call("SET", key, repr(full_at - seconds))
        for key in await self._pool.call("KEYS", self._keys.result + "*"):
            remaining_ms = int(await self._pool.call("PTTL", key))
            await self._pool.call("PEXPIRE", key, remaining_ms - round(1_000 * seconds))

    async def trim_feed(self) -> None:
        await self._pool.call("XTRIM", self._keys.feed, "MAXLEN", 1)


# -- Redis with PostgreSQL, whose archive is updated after each commit --------------------------


class ArchivedHarness(RedisHarness):
    def __init__(self, backend: RedisPostgresBackend, clock: Clock, telemetry: Telemetry) -> None:
        super().__init__(backend.redis)
        self.backend: Backend = backend
        backend.store = cast("Store", ArchivingStore(backend, clock, telemetry))


class ArchivingStore:
    """A store that archives each commit at once.

    All other attributes are those of the wrapped store.
    """

    def __init__(self, backend: RedisPostgresBackend, clock: Clock, telemetry: Telemetry) -> None:
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
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        lease = await self._store.acquire(partition, owner, expected=expected)
        self._leases[partition] = lease
        return await self._store.restore(lease)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        await self._store.commit(lease, commit)
        await self._archiver.tick()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        return method
