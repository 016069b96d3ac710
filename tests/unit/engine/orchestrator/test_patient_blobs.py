"""Reading a blob in order to decide: a failure is no loss until it has lasted."""

import asyncio

import pytest

from runnel.backends.blob_files import MemoryBlobs
from runnel.engine.blob_cache import TRY_AGAIN_S, PatientBlobs
from runnel.errors import NotFoundError, StoreError
from runnel.notify.hub import Hub
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
    """The blob, which has to be there (or to be given up) once that time has passed."""
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(PatientBlobs(stored, clock, Hub()).get(KEY))
        await clock.advance(after_s)
        if not reading.done():
            reading.cancel()
    return reading.result()


@pytest.mark.parametrize("failures", range(len(TRY_AGAIN_S) + 1))
async def test_a_read_that_fails_for_a_while_is_tried_again(failures: int) -> None:
    stored = FailingBlobs(failures)
    await stored.put(KEY, DATA)

    found = await read(stored, after_s=sum(TRY_AGAIN_S[:failures]))

    assert (found, stored.reads) == (DATA, failures + 1)


async def test_a_blob_that_stays_unreadable_is_lost_after_a_few_tries() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await read(FailingBlobs(100), after_s=sum(TRY_AGAIN_S))

    assert caught.group_contains(NotFoundError, match="no readable blob 'x1/a'; too many open")


async def test_a_blob_that_is_not_there_is_lost_at_once() -> None:
    stored = FailingBlobs(0)

    with pytest.raises(ExceptionGroup) as caught:
        await read(stored, after_s=0)

    assert caught.group_contains(NotFoundError, match="no blob 'x1/a'")
    assert stored.reads == 1
