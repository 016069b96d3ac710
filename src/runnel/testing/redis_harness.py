"""The accidents of a Redis backend; in a file of its own, because hiredis is an extra."""

from runnel.backends.redis import RedisBackend
from runnel.ports.backend import Backend
from runnel.ports.store import Lease


class RedisHarness:
    def __init__(self, backend: RedisBackend) -> None:
        self.backend: Backend = backend
        self._lines = backend.lines
        self._keys = backend.keys

    async def abandon(self, lease: Lease) -> None:
        """A lease on a server stays as it is: its counter does not move any more."""

    async def inject_message(self, partition: int, body: bytes) -> None:
        await self._lines.call("XADD", f"{self._keys.inbox}{partition}", "*", "m", body)

    async def pass_time(self, seconds: float) -> None:
        """Sets what has a time back instead: it comes to the same."""
        for key in await self._lines.call("KEYS", self._keys.window + "*"):
            for member in await self._lines.call("ZRANGE", key, 0, -1):
                await self._lines.call("ZINCRBY", key, round(-1_000_000 * seconds), member)
        for key in await self._lines.call("KEYS", self._keys.bucket + "*"):
            full_at = float(await self._lines.call("GET", key))
            await self._lines.call("SET", key, repr(full_at - seconds))
        for key in await self._lines.call("KEYS", self._keys.result + "*"):
            left_ms = int(await self._lines.call("PTTL", key))
            await self._lines.call("PEXPIRE", key, left_ms - round(1_000 * seconds))

    async def forget_changes(self) -> None:
        await self._lines.call("XTRIM", self._keys.feed, "MAXLEN", 1)
