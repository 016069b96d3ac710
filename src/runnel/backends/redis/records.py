"""Records, request windows and blobs on a Redis server.

The keys of records and blobs are also in sorted sets by name, for pages and prefix searches.
"""

import asyncio
from collections.abc import Sequence

from runnel.backends.redis.connection_pool import SHARED_BYTES_MAX, RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames
from runnel.errors import ConflictError, NotFoundError
from runnel.ports.records import Record


class RedisRecords:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def get(self, kind: str, key: str) -> Record | None:
        value = await self._pool.call("HGET", self._keys.records + kind, key)
        return None if value is None else _decode_record(kind, key, value)

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        reply = await self._pool.run_script(
            "list_records", self._build_keys(kind), ["(" + after, limit]
        )
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return [_decode_record(kind, key.decode(), value) for key, value in pairs]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        new_revision, current = await self._pool.run_script(
            "put_record", [*self._build_keys(kind), self._keys.revisions], [key, revision, data]
        )
        if not new_revision:
            raise ConflictError(kind, key, expected=revision, found=current)
        return int(new_revision)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        expected = "" if revision is None else revision
        is_deleted, current = await self._pool.run_script(
            "delete_record", self._build_keys(kind), [key, expected]
        )
        if current and not is_deleted:
            raise ConflictError(kind, key, expected=revision or 0, found=current)
        return bool(is_deleted)

    def _build_keys(self, kind: str) -> Sequence[str]:
        return (self._keys.records + kind, self._keys.record_names + kind)


def _decode_record(kind: str, key: str, value: bytes) -> Record:
    revision, _, data = value.partition(b" ")
    return Record(kind=kind, key=key, data=data, revision=int(revision))


# -- request windows, counted by the server on its clock ----------------------------------------

MICROSECONDS_PER_S = 1_000_000


class RedisRequestWindows:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def admit(self, caller: str, *, limit: int, window_s: float) -> float:
        args = [limit, round(window_s * MICROSECONDS_PER_S)]
        wait_us = await self._pool.run_script("admit_request", [self._keys.window + caller], args)
        return float(wait_us) / MICROSECONDS_PER_S


# -- blobs -------------------------------------------------------------------------------------

DELETE_BATCH_SIZE = 500
READ_BATCH_SIZE = 100
PREFIX_END = b"\xff"


class RedisBlobs:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def put(self, key: str, data: bytes) -> None:
        """Stores the name of the blob, then the blob.

        A deletion can remove a name without a blob, but would never find a blob without a name.
        """
        await self._pool.call("ZADD", self._keys.blobs, 0, key)
        await self._pool.call("SET", self._keys.blob + key, data)

    async def get(self, key: str) -> bytes:
        data: bytes | None = await self._pool.call("GET", self._keys.blob + key, is_large=True)
        if data is None:
            raise NotFoundError("blob", key)
        return data

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        parts: list[bytes | None] = []
        for first in range(0, len(keys), READ_BATCH_SIZE):
            page = keys[first : first + READ_BATCH_SIZE]
            parts += await asyncio.gather(*[self._read_part(key, start, size) for key in page])
        return parts

    async def _read_part(self, key: str, start: int, size: int) -> bytes | None:
        name = self._keys.blob + key
        end = start + size - 1
        part: bytes = await self._pool.call(
            "GETRANGE", name, start, end, is_large=size > SHARED_BYTES_MAX
        )
        # The part of a missing blob is empty, too.
        return part if part or await self._pool.call("EXISTS", name) else None

    async def delete(self, prefix: str) -> int:
        first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + PREFIX_END
        deleted, examined = 0, DELETE_BATCH_SIZE
        while examined == DELETE_BATCH_SIZE:
            examined, removed = await self._pool.run_script(
                "delete_blobs",
                [self._keys.blobs, self._keys.blob],
                [first, last, DELETE_BATCH_SIZE],
            )
            deleted += removed
        return deleted
