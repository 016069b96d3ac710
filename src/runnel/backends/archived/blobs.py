"""Blobs of what runs are in Redis; the archiver copies them, and those of the past are there."""

from runnel.errors import NotFoundError
from runnel.ports.blobs import BlobStore


class ArchivedBlobs:
    def __init__(self, hot: BlobStore, cold: BlobStore) -> None:
        self._hot = hot
        self._cold = cold

    async def put(self, key: str, data: bytes) -> None:
        await self._hot.put(key, data)

    async def get(self, key: str) -> bytes:
        try:
            return await self._hot.get(key)
        except NotFoundError:
            return await self._cold.get(key)

    async def delete(self, prefix: str) -> int:
        """Counts one that is in both places once."""
        return max(await self._hot.delete(prefix), await self._cold.delete(prefix))
