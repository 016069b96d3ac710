"""Ports for small records (schedules, webhooks, tokens), for request counts, and for blobs."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A versioned value that is stored by kind and key.

    `revision` is above 0 and grows with each `put`, even if the record is deleted in between.
    """

    kind: str
    key: str
    data: bytes
    revision: int


class Records(Protocol):
    """Stores versioned values by kind and key.

    Kind and key are any non-empty text that UTF-8 can encode.
    """

    async def get(self, kind: str, key: str) -> Record | None: ...

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        """Returns a page of the records of a kind, sorted by the UTF-8 bytes of their keys.

        `after` is the last key of the previous page. A page with fewer than `limit` records is the
        last page.
        """

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        """Replaces the record that has this revision and returns the new revision.

        With revision 0, `put` creates the record. Raises ConflictError if the stored record has
        another revision; the error contains that revision.
        """

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        """Deletes the record; returns True if it existed.

        Raises ConflictError if the record has another revision.
        """


class RequestWindows(Protocol):
    """Counts the recent requests of each caller, over all processes that share a store."""

    async def admit(self, caller: str, *, limit: int, window_s: float) -> float:
        """Returns 0 if the request is admitted, and the seconds until the next free slot if it is
        refused.

        At most `limit` requests of a caller are admitted within any `window_s` seconds. A refused
        request does not count towards the limit.
        """


class BlobStore(Protocol):
    """Stores values that are too large for events and messages, by key."""

    async def put(self, key: str, data: bytes) -> None:
        """Stores the blob and returns once its content is durable.

        A second `put` with the same key replaces the whole content.
        """

    async def get(self, key: str) -> bytes:
        """Returns the content of the blob.

        Raises NotFoundError('blob', key) if the blob does not exist.
        """

    async def delete(self, prefix: str) -> int:
        """Deletes every blob whose key begins with `prefix`; returns how many existed."""


class RandomAccessBlobStore(BlobStore, Protocol):
    """The blob store of a backend, which also reads parts of blobs."""

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        """Returns at most `size` bytes of each blob from the byte `start` on, in the keys' order.

        A part is shorter if the blob ends earlier. The part of a missing blob is None.
        """
