"""Ports of small records (schedules, webhooks, tokens), of request counts, and of blobs."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`revision` is above 0, grows with each `put`, and never comes back after a deletion."""

    kind: str
    key: str
    data: bytes
    revision: int


class Records(Protocol):
    """A kind or a key is any text that UTF-8 can write, but not an empty one."""

    async def get(self, kind: str, key: str) -> Record | None: ...

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        """By key, as UTF-8 sorts; `after` is the last key of the previous page.

        Fewer than `limit` are all that there are.
        """

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        """Replaces the record that has this revision, and returns its new one.

        With 0 it must not be there yet. Raises ConflictError with the revision that was found.
        """

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        """Whether it was there; raises ConflictError if that was another revision."""


class RequestWindows(Protocol):
    """Counts the recent requests of each caller, over all processes that share a store."""

    async def admit(self, caller: str, *, limit: int, window_s: float) -> float:
        """0 when this request is one of at most `limit` in any window of this length, and counted.

        Otherwise the seconds until one would be admitted; a request that was not is not counted.
        """


class BlobStore(Protocol):
    """Holds values that are too large to be carried along."""

    async def put(self, key: str, data: bytes) -> None:
        """Returns once the content is safe; putting the same key again replaces it whole."""

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""

    async def delete(self, prefix: str) -> int:
        """Removes every blob whose key begins so; returns how many there were."""
