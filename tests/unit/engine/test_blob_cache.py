"""The cache of recently used blobs."""

import pytest

from runnel.backends.blob_files import MemoryBlobs
from runnel.engine import blob_cache
from runnel.engine.blob_cache import BlobCache
from runnel.errors import NotFoundError, StoreError


class CountedBlobs(MemoryBlobs):
    """A blob store that records reads and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.is_away = False

    async def get(self, key: str) -> bytes:
        self.read.append(key)
        if self.is_away:
            raise StoreError("the disk is full of sand")
        return await super().get(key)


@pytest.fixture
def store() -> CountedBlobs:
    return CountedBlobs()


async def test_a_blob_is_read_once(store: CountedBlobs) -> None:
    cache = BlobCache(store)
    await cache.put("x1/a", b"1")

    assert cache.peek("x1/a") is None
    assert [await cache.get("x1/a"), await cache.get("x1/a")] == [b"1", b"1"]
    assert cache.peek("x1/a") == b"1"
    assert store.read == ["x1/a"]


async def test_deleted_blobs_are_forgotten_and_others_are_kept(store: CountedBlobs) -> None:
    cache = BlobCache(store)
    for key in ("x1/a", "x1/b", "x2/a"):
        await cache.put(key, b"1")
        await cache.get(key)

    assert await cache.delete("x1/") == 2
    assert [cache.peek(key) for key in ("x1/a", "x1/b", "x2/a")] == [None, None, b"1"]
    with pytest.raises(NotFoundError):
        await cache.get("x1/a")


async def test_the_least_recently_used_blobs_leave_first_but_a_few_always_stay(
    store: CountedBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_cache, "CACHE_BYTES_MAX", 30)
    monkeypatch.setattr(blob_cache, "CACHED_BLOBS_MIN", 2)
    cache = BlobCache(store)
    for key in "abcd":
        await cache.put(key, b"x" * 10)
    for key in ("a", "b", "c"):
        await cache.get(key)
    cache.peek("a")
    await cache.get("d")

    small = [key for key in "abcd" if cache.peek(key) is not None]
    await cache.put("large", b"x" * 1_000)
    await cache.get("large")

    assert small == ["a", "c", "d"]
    assert [key for key in ("a", "c", "d", "large") if cache.peek(key)] == ["d", "large"]
