"""Blob reads for decisions: a failed read is retried before it counts as a loss."""

import asyncio

import pytest

from runnel.backends.blob_files import MemoryBlobs
from runnel.engine.blob_cache import RETRY_DELAYS_S, RetryingBlobCache
from runnel.errors import NotFoundError, StoreError
from runnel.notify.event_bus import EventBus
from runnel.testing.clock import FakeClock

KEY, DATA = "x1/a", b"[1]"


class FailingBlobs(MemoryBlobs):
    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.reads = 0

    async def get(self, key: str) -> bytes:
        self.reads += 1
        if self.reads <= self.failures:
            raise StoreError("too many open files")
        return await super().get(key)


async def read(stored: FailingBlobs, *, after_s: float) -> bytes:
    """Returns the blob, which must be read (or given up) once that time has passed."""
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(RetryingBlobCache(stored, clock, EventBus()).get(KEY))
        await clock.advance(after_s)
        if not reading.done():
            reading.cancel()
    return reading.result()


@pytest.mark.parametrize("failures", range(len(RETRY_DELAYS_S) + 1))
async def test_a_failed_read_is_retried(failures: int) -> None:
    stored = FailingBlobs(failures)
    await stored.put(KEY, DATA)

    data = await read(stored, after_s=sum(RETRY_DELAYS_S[:failures]))

    assert (data, stored.reads) == (DATA, failures + 1)


async def test_a_blob_that_stays_unreadable_is_lost_after_all_retries() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await read(FailingBlobs(100), after_s=sum(RETRY_DELAYS_S))

    assert caught.group_contains(NotFoundError, match="no readable blob 'x1/a'; too many open")


async def test_a_missing_blob_is_lost_at_once() -> None:
    stored = FailingBlobs(0)

    with pytest.raises(ExceptionGroup) as caught:
        await read(stored, after_s=0)

    assert caught.group_contains(NotFoundError, match="no blob 'x1/a'")
    assert stored.reads == 1
