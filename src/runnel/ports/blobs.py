"""Where values live that are too large to be carried along."""

from typing import Protocol


class BlobStore(Protocol):
    async def put(self, key: str, data: bytes) -> None:
        """Returns once the content is safe; putting the same key again replaces it whole."""

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""

    async def delete(self, prefix: str) -> int:
        """Removes every blob whose key begins so; returns how many there were."""
