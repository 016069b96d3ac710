"""What a Redis server tells about itself, and what Runnel has stored there; changes nothing."""

from collections.abc import Mapping

import msgspec

from runnel.backends.redis.backend import PREFIX
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.leases import Leases
from runnel.errors import StoreError
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import LeaseRecord


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`fsync` is None where the server does not tell; `ahead_s` is how much later its clock is."""

    product: str
    version: tuple[int, int]
    version_text: str
    role: str
    has_aof: bool
    fsync: str | None
    eviction: str
    memory_used_bytes: int
    memory_max_bytes: int
    ahead_s: float
    partitions: int | None
    """None before the first process of Runnel has opened it."""
    incarnation: str | None
    """The archive that it belongs to; None without one."""
    identity: str | None = None
    """Its own name, as its archive knows it; None without one."""
    address: str = ""
    journals: Mapping[int, int] = {}
    """The first commit that each partition still keeps for its archive."""


class Health:
    """Of the server at `url`; every method raises StoreError when it can't be reached."""

    def __init__(
        self, url: str, clock: Clock, ids: Ids, *, prefix: str = PREFIX, call_s: float
    ) -> None:
        self._lines = Lines(url, clock, call_s=call_s)
        self._keys = Keys(prefix)
        self._leases = Leases(self._lines, self._keys, ids)
        self._clock = clock

    async def ping(self) -> None:
        await self._lines.run_id()

    async def facts(self) -> ServerFacts:
        info = _parse(await self._lines.call("INFO"))
        is_valkey = "valkey_version" in info
        version = info["valkey_version"] if is_valkey else info.get("redis_version", "0.0")
        major, minor = (*map(int, version.split(".")[:2]), 0)[:2]
        stored, incarnation, identity = await self._lines.call(
            "HMGET", self._keys.layout, "partitions", "incarnation", "identity"
        )
        return ServerFacts(
            product="Valkey" if is_valkey else "Redis",
            version=(major, minor),
            version_text=version,
            role=info.get("role", ""),
            has_aof=info.get("aof_enabled") == "1",
            fsync=await self._config("appendfsync"),
            eviction=info.get("maxmemory_policy", ""),
            memory_used_bytes=int(info.get("used_memory", "0")),
            memory_max_bytes=int(info.get("maxmemory", "0")),
            ahead_s=await self._ahead_s(),
            partitions=None if stored is None else int(stored),
            incarnation=incarnation.decode() if incarnation else None,
            identity=identity.decode() if identity else None,
            address=self._lines.address,
            journals=await self._journals(0 if stored is None else int(stored)),
        )

    async def _journals(self, partitions: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for number in range(partitions):
            key = f"{self._keys.journal}{number}"
            for place, _ in await self._lines.call("XRANGE", key, "-", "+", "COUNT", 1):
                found[number] = int(place.partition(b"-")[0])
        return found

    async def owners(self, partitions: int) -> dict[int, LeaseRecord | None]:
        return {number: await self._leases.observe(number) for number in range(partitions)}

    async def close(self) -> None:
        await self._lines.close()

    async def _config(self, name: str) -> str | None:
        """None where `CONFIG` is forbidden, as on most servers that somebody else runs."""
        try:
            found = await self._lines.call("CONFIG", "GET", name)
        except StoreError:
            return None
        return found[1].decode() if found else None

    async def _ahead_s(self) -> float:
        """Against the middle of the call: it is right up to half of what that takes."""
        before = self._clock.now()
        seconds, micro = await self._lines.call("TIME")
        middle = (before + self._clock.now()) / 2
        return int(seconds) + int(micro) / 1_000_000 - middle


def _parse(info: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {key: value for key, separator, value in pairs if separator}
