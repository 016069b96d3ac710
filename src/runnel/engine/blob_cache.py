"""Blobs that were needed lately: each item of a map would otherwise read its list from disk."""

from collections import OrderedDict

from runnel.engine.store_retry import StoreRetry
from runnel.errors import NotFoundError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.records import BlobStore
from runnel.ports.telemetry import STORE_FAILED, Telemetry

CACHE_BYTES_MAX = 64 * 1024 * 1024
CACHED_BLOBS_MIN = 8


class BlobCache:
    """What is stored under a key never changes, so what was read once need not be read again.

    Bounded by size; the last few always stay, because one expression may need several at once.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def peek(self, key: str) -> bytes | None:
        """None when it would have to be read first."""
        data = self._blobs.get(key)
        if data is not None:
            self._blobs.move_to_end(key)
        return data

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""
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


# Blobs for deciding: a read that fails is tried again before it is the end of an execution.

# The whole partition waits meanwhile: long enough for a moment without a free file handle, short
# enough for those whose blobs can be read.
RETRY_DELAYS_S = (0.1, 0.4, 1.5, 4.0)


class RetryingBlobCache(BlobCache):
    """A blob that stays unreadable is its execution's misfortune, not that of the partition."""

    def __init__(self, store: BlobStore, clock: Clock, telemetry: Telemetry) -> None:
        super().__init__(store)
        self._clock = clock
        self._telemetry = telemetry

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError: at once for what is not there, later for what can't be read."""
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


# Blobs for tasks: a store that can't be reached is waited for, it is no failure of the task.


class RetryingBlobStore:
    """Asks again until it gets an answer; what bounds that is the time limit of the task."""

    def __init__(self, blobs: BlobStore, store_retry: StoreRetry) -> None:
        self._blobs = blobs
        self._store_retry = store_retry

    async def put(self, key: str, data: bytes) -> None:
        await self._store_retry.run(lambda: self._blobs.put(key, data), "put")

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""
        return await self._store_retry.run(lambda: self._blobs.get(key), "get")

    async def delete(self, prefix: str) -> int:
        return await self._store_retry.run(lambda: self._blobs.delete(prefix), "delete")
