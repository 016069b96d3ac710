"""Values on their way into a command: inline when small, else a blob that is sent besides."""

from collections.abc import Mapping

from runnel.core.ids import ExecutionId
from runnel.core.values import BLOB_BYTES_MAX, INLINE_BYTES_MAX, Value, blob, from_bytes
from runnel.errors import PayloadError
from runnel.ports.blobs import BlobStore
from runnel.ports.clock import Ids
from runnel.ports.store import NO_BLOBS

Carried = tuple[Value, Mapping[str, bytes]]
"""The value as a command has it, and what is to be sent with that command."""


class Carrier:
    def __init__(self, blobs: BlobStore, ids: Ids) -> None:
        self._blobs = blobs
        self._ids = ids

    def carry(self, data: bytes, prefix: str) -> Carried:
        """A key of its own for each call: of two calls at once, one may be accepted.

        Raises PayloadError for what is too large.
        """
        if len(data) <= INLINE_BYTES_MAX:
            return from_bytes(data), NO_BLOBS
        if len(data) > BLOB_BYTES_MAX:
            raise PayloadError(
                f"a value has {len(data)} bytes, at most {BLOB_BYTES_MAX} are allowed"
            )
        key = f"{prefix}/{self._ids.nonce()}"
        return blob(key, len(data)), {key: data}

    async def content(self, value: Value) -> bytes:
        return await self._blobs.get(value.blob) if value.blob else value.data

    async def copied(self, value: Value, execution_id: ExecutionId) -> Carried:
        """The value of another execution as this one's own: the other may be deleted any time."""
        if value.blob is None:
            return value, NO_BLOBS
        return self.carry(await self.content(value), f"{execution_id}/taken")
