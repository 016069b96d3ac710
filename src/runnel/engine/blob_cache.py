"""Caches of recently used blobs.

Without a cache, each item of a map would read the map's list from disk.
"""

from collections import OrderedDict

from runnel.engine.store_retry import StoreRetry
from runnel.errors import NotFoundError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.records import BlobStore
from runnel.ports.telemetry import STORE_FAILED, Telemetry

CACHE_BYTES_MAX = 64 * 1024 * 1024
CACHED_BLOBS_MIN = 8


class BlobCache:
    """A cache in front of a blob store.

    Entries never expire, because the content of a key never changes.

    The size of the cache is bounded by CACHE_BYTES_MAX. The last CACHED_BLOBS_MIN blobs always stay
    in memory, because one expression may need several at once.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def peek(self, key: str) -> bytes | None:
        """Returns the blob, or None if it is not in memory."""
        data = self._blobs.get(key)
        if data is not None:
            self._blobs.move_to_end(key)
        return data

    async def get(self, key: str) -> bytes:
        """Returns the blob. Raises NotFoundError('blob', key) if it is missing."""
        cached = self.peek(key)
        if cached is not None:
            return cached
        data = await self._store.get(key)
        self._add(key, data)
        return data

    async def put(self, key: str, data: bytes) -> None:
        await self._store.put(key, data)

    async def delete(self, prefix: str) -> int:
        for key in [key for key in self._blobs if key.startswith(prefix)]:
            self._size -= len(self._blobs.pop(key))
        return await self._store.delete(prefix)

    def _add(self, key: str, data: bytes) -> None:
        self._size += len(data) - len(self._blobs.pop(key, b""))
        self._blobs[key] = data
        while self._size > CACHE_BYTES_MAX and len(self._blobs) > CACHED_BLOBS_MIN:
            _, dropped = self._blobs.popitem(last=False)
            self._size -= len(dropped)


# Blobs for decisions: a failed read is retried before the execution fails.

# The partition is blocked during the retries. The retries outlast a short lack of file handles.
# The retries end soon enough for the partition's other executions, whose blobs can be read.
RETRY_DELAYS_S = (0.1, 0.4, 1.5, 4.0)


class RetryingBlobCache(BlobCache):
    """A blob cache that retries reads. If a blob stays unreadable, only its execution fails."""

    def __init__(self, store: BlobStore, clock: Clock, telemetry: Telemetry) -> None:
        super().__init__(store)
        self._clock = clock
        self._telemetry = telemetry

    async def get(self, key: str) -> bytes:
        """Returns the blob.

        Raises NotFoundError at once if the blob is missing, and after retries if it can't be read.
        """
        for delay_s in RETRY_DELAYS_S:
            try:
                return await super().get(key)
            except StoreError as error:
                self._telemetry.event(STORE_FAILED, call="get", error=str(error))
            await self._clock.sleep(delay_s)
        try:
            return await super().get(key)
        except StoreError as error:
            raise NotFoundError("readable blob", key, hint=str(error)) from error


# Blobs for tasks: the worker waits for an unreachable store instead of failing the task.


class RetryingBlobStore:
    """A blob store that repeats each call until the underlying store responds.

    Only the time limit of the task bounds the retries.
    """

    def __init__(self, blobs: BlobStore, store_retry: StoreRetry) -> None:
        self._blobs = blobs
        self._store_retry = store_retry

    async def put(self, key: str, data: bytes) -> None:
        await self._store_retry.run(lambda: self._blobs.put(key, data), "put")

    async def get(self, key: str) -> bytes:
        """Returns the blob. Raises NotFoundError('blob', key) if it is missing."""
        return await self._store_retry.run(lambda: self._blobs.get(key), "get")

    async def delete(self, prefix: str) -> int:
        return await self._store_retry.run(lambda: self._blobs.delete(prefix), "delete")
