"""Blobs on the server: one string each, and their keys by name, so that a prefix finds them."""

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.errors import NotFoundError

DELETED_AT_ONCE = 500
LAST = b"\xff"


class RedisBlobs:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def put(self, key: str, data: bytes) -> None:
        """The name first: a name without a blob is found by a deletion, the reverse is not."""
        await self._lines.call("ZADD", self._keys.blobs, 0, key)
        await self._lines.call("SET", self._keys.blob + key, data)

    async def get(self, key: str) -> bytes:
        found: bytes | None = await self._lines.call("GET", self._keys.blob + key, is_large=True)
        if found is None:
            raise NotFoundError("blob", key)
        return found

    async def delete(self, prefix: str) -> int:
        first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + LAST
        deleted, found = 0, DELETED_AT_ONCE
        while found == DELETED_AT_ONCE:
            found, gone = await self._lines.run(
                "delete_blobs",
                [self._keys.blobs, self._keys.blob],
                [first, last, DELETED_AT_ONCE],
            )
            deleted += gone
        return deleted
