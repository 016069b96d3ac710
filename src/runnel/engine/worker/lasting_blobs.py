"""Blobs for tasks: a store that can't be reached is waited for, it is no failure of the task."""

from runnel.engine.patience import Patience
from runnel.ports.blobs import BlobStore


class LastingBlobs:
    """Asks again until it gets an answer; what bounds that is the time limit of the task."""

    def __init__(self, blobs: BlobStore, patience: Patience) -> None:
        self._blobs = blobs
        self._patience = patience

    async def put(self, key: str, data: bytes) -> None:
        await self._patience.until_done(lambda: self._blobs.put(key, data), "put")

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""
        return await self._patience.until_done(lambda: self._blobs.get(key), "get")

    async def delete(self, prefix: str) -> int:
        return await self._patience.until_done(lambda: self._blobs.delete(prefix), "delete")
