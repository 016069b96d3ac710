"""Blobs for deciding: a read that fails is tried again before it is the end of an execution."""

from runnel.engine.blob_cache import BlobCache
from runnel.errors import NotFoundError, StoreError
from runnel.ports.blobs import BlobStore
from runnel.ports.clock import Clock
from runnel.ports.telemetry import STORE_FAILED, Telemetry

# The whole partition waits meanwhile: long enough for a moment without a free file handle, short
# enough for those whose blobs can be read.
TRY_AGAIN_S = (0.1, 0.4, 1.5, 4.0)


class PatientBlobs(BlobCache):
    """A blob that stays unreadable is its execution's misfortune, not that of the partition."""

    def __init__(self, store: BlobStore, clock: Clock, telemetry: Telemetry) -> None:
        super().__init__(store)
        self._clock = clock
        self._telemetry = telemetry

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError: at once for what is not there, later for what can't be read."""
        for delay_s in TRY_AGAIN_S:
            try:
                return await super().get(key)
            except StoreError as error:
                self._telemetry.event(STORE_FAILED, call="get", error=str(error))
            await self._clock.sleep(delay_s)
        try:
            return await super().get(key)
        except StoreError as error:
            raise NotFoundError("readable blob", key, hint=str(error)) from error
