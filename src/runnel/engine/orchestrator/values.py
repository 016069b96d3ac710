"""Blobs that deciding has needed lately."""

from collections import OrderedDict

from runnel.core.values import Value
from runnel.ports.blobs import BlobStore

BYTES_MAX = 256 * 1024 * 1024


class LoadedValues:
    """Bounded by size; the one that was loaded last always stays, or deciding would never end."""

    def __init__(self, blobs: BlobStore) -> None:
        self._store = blobs
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def get(self, key: str) -> bytes | None:
        return self._blobs.get(key)

    async def load(self, value: Value) -> None:
        if value.blob is not None:
            self._put(value.blob, await self._store.get(value.blob))

    def _put(self, key: str, data: bytes) -> None:
        self._size += len(data) - len(self._blobs.pop(key, b""))
        self._blobs[key] = data
        while self._size > BYTES_MAX and len(self._blobs) > 1:
            _, dropped = self._blobs.popitem(last=False)
            self._size -= len(dropped)
