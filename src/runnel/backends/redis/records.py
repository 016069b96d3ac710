"""Records on the server: a hash for each kind, and its keys by name, so that pages can be read."""

from collections.abc import Sequence

from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys
from runnel.errors import ConflictError, NotFoundError
from runnel.ports.records import Record


class RedisRecords:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._lines.call("HGET", self._keys.records + kind, key)
        return None if found is None else _record(kind, key, found)

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        found = await self._lines.run("list_records", self._places(kind), ["(" + after, limit])
        pairs = zip(found[::2], found[1::2], strict=True)
        return [_record(kind, key.decode(), value) for key, value in pairs]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        given, found = await self._lines.run(
            "put_record", [*self._places(kind), self._keys.revisions], [key, revision, data]
        )
        if not given:
            raise ConflictError(kind, key, expected=revision, found=found)
        return int(given)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        expected = "" if revision is None else revision
        is_gone, found = await self._lines.run("delete_record", self._places(kind), [key, expected])
        if found and not is_gone:
            raise ConflictError(kind, key, expected=revision or 0, found=found)
        return bool(is_gone)

    def _places(self, kind: str) -> Sequence[str]:
        return (self._keys.records + kind, self._keys.record_names + kind)


def _record(kind: str, key: str, value: bytes) -> Record:
    revision, _, data = value.partition(b" ")
    return Record(kind=kind, key=key, data=data, revision=int(revision))


# Requests of the last while, counted for all processes by the server and its clock.

MICROSECONDS = 1_000_000


class RedisWindows:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def admit(self, who: str, *, limit: int, window_s: float) -> float:
        args = [limit, round(window_s * MICROSECONDS)]
        wait = await self._lines.run("admit", [self._keys.window + who], args)
        return float(wait) / MICROSECONDS


# Blobs on the server: one string each, and their keys by name, so that a prefix finds them.

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
