"""Read-only inspection of a Redis server and of the data that Runnel stores there."""

from collections.abc import Mapping

import msgspec

from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames
from runnel.backends.redis.leases import RedisLeases
from runnel.backends.redis.options import RedisOptions
from runnel.errors import StoreError
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.store import LeaseRecord


class RedisServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the server.

    `fsync` is None if the server does not report its setting. `clock_ahead_s` is the number of
    seconds by which the server's clock is ahead of the local clock.
    """

    product: str
    version: tuple[int, int]
    version_text: str
    role: str
    has_aof: bool
    fsync: str | None
    eviction: str
    memory_used_bytes: int
    memory_max_bytes: int
    clock_ahead_s: float
    partitions: int | None
    """The number of partitions; None before the first Runnel process has opened the store."""
    incarnation: str | None
    """The name of the archive that is paired with this Redis; None if it has no archive."""
    identity: str | None = None
    """The name of this Redis in its archive; None if it has no archive."""
    address: str = ""
    journal_starts: Mapping[int, int] = {}
    """The first commit in the journal of each partition that has a journal."""


class RedisHealth:
    """Inspects the Redis server at `url`.

    Every method raises StoreError if the server can't be reached.
    """

    def __init__(self, url: str, options: RedisOptions, clock: Clock, ids: IdGenerator) -> None:
        self._pool = RedisConnectionPool(url, clock, options)
        self._keys = RedisKeyNames(options.prefix)
        self._leases = RedisLeases(self._pool, self._keys, ids)
        self._clock = clock

    async def ping(self) -> None:
        await self._pool.run_id()

    async def read_facts(self) -> RedisServerFacts:
        info = _parse_info(await self._pool.call("INFO"))
        is_valkey = "valkey_version" in info
        version = info["valkey_version"] if is_valkey else info.get("redis_version", "0.0")
        major, minor = (*map(int, version.split(".")[:2]), 0)[:2]
        stored, incarnation, identity = await self._pool.call(
            "HMGET", self._keys.layout, "partitions", "incarnation", "identity"
        )
        return RedisServerFacts(
            product="Valkey" if is_valkey else "Redis",
            version=(major, minor),
            version_text=version,
            role=info.get("role", ""),
            has_aof=info.get("aof_enabled") == "1",
            fsync=await self._read_config("appendfsync"),
            eviction=info.get("maxmemory_policy", ""),
            memory_used_bytes=int(info.get("used_memory", "0")),
            memory_max_bytes=int(info.get("maxmemory", "0")),
            clock_ahead_s=await self._measure_clock_ahead(),
            partitions=None if stored is None else int(stored),
            incarnation=incarnation.decode() if incarnation else None,
            identity=identity.decode() if identity else None,
            address=self._pool.address,
            journal_starts=await self._read_journal_starts(0 if stored is None else int(stored)),
        )

    async def _read_journal_starts(self, partitions: int) -> dict[int, int]:
        starts: dict[int, int] = {}
        for number in range(partitions):
            key = f"{self._keys.journal}{number}"
            for entry_id, _ in await self._pool.call("XRANGE", key, "-", "+", "COUNT", 1):
                starts[number] = int(entry_id.partition(b"-")[0])
        return starts

    async def read_owners(self, partitions: int) -> dict[int, LeaseRecord | None]:
        return {number: await self._leases.observe(number) for number in range(partitions)}

    async def close(self) -> None:
        await self._pool.close()

    async def _read_config(self, name: str) -> str | None:
        """Returns a setting of the server, or None if `CONFIG` is forbidden, as on most hosted
        servers.
        """
        try:
            reply = await self._pool.call("CONFIG", "GET", name)
        except StoreError:
            return None
        return reply[1].decode() if reply else None

    async def _measure_clock_ahead(self) -> float:
        """Returns the seconds by which the server's clock is ahead of the local clock.

        Compares the server's time with the middle of the call, so the error is at most half of the
        duration of the call.
        """
        before = self._clock.now()
        server_time = await self._pool.read_time()
        middle = (before + self._clock.now()) / 2
        return server_time - middle


def _parse_info(info: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {key: value for key, separator, value in pairs if separator}
