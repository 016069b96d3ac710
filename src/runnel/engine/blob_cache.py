"""Blobs that were needed lately: each item of a map would otherwise read its list from disk."""

from collections import OrderedDict

from runnel.ports.blobs import BlobStore

BYTES_MAX = 64 * 1024 * 1024
KEPT_MIN = 8


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
        found = self._blobs.get(key)
        if found is not None:
            self._blobs.move_to_end(key)
        return found

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""
        found = self.peek(key)
        if found is not None:
            return found
        data = await self._store.get(key)
        self._keep(key, data)
        return data

    async def put(self, key: str, data: bytes) -> None:
        await self._store.put(key, data)

    async def delete(self, prefix: str) -> int:
        for key in [key for key in self._blobs if key.startswith(prefix)]:
            self._size -= len(self._blobs.pop(key))
        return await self._store.delete(prefix)

    def _keep(self, key: str, data: bytes) -> None:
        self._size += len(data) - len(self._blobs.pop(key, b""))
        self._blobs[key] = data
        while self._size > BYTES_MAX and len(self._blobs) > KEPT_MIN:
            _, dropped = self._blobs.popitem(last=False)
            self._size -= len(dropped)
