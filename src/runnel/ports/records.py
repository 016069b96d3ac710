"""Ports of small records (schedules, webhooks, tokens), of request counts, and of blobs."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A versioned value.

    `revision` is above 0 and grows with each `put`, also across a deletion.
    """

    kind: str
    key: str
    data: bytes
    revision: int


class Records(Protocol):
    """Versioned values by kind and key. Both are any non-empty text that UTF-8 can encode."""

    async def get(self, kind: str, key: str) -> Record | None: ...

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        """Returns records sorted by the UTF-8 bytes of their key.

        `after` is the last key of the previous page. A page with fewer than `limit` records is the
        last.
        """

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        """Replaces the record that has this revision and returns the new revision.

        With revision 0 the record must not exist yet. Raises ConflictError with the revision in the
        store.
        """

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        """Returns whether the record existed. Raises ConflictError if it has another revision."""


class RequestWindows(Protocol):
    """Counts the recent requests of each caller, over all processes that share a store."""

    async def admit(self, caller: str, *, limit: int, window_s: float) -> float:
        """Returns 0 if the request is admitted and counted: one of at most `limit` in any window.

        Otherwise returns the seconds until a request would be admitted. A refused request is not
        counted.
        """


class BlobStore(Protocol):
    """Stores values that are too large for events and messages, by key."""

    async def put(self, key: str, data: bytes) -> None:
        """Returns once the content is durable.

        A second `put` of a key replaces all of its content.
        """

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError('blob', key)."""

    async def delete(self, prefix: str) -> int:
        """Deletes every blob whose key begins with `prefix`; returns how many existed."""
