"""Blobs are stored whole, under any key."""

import pytest

from runnel.errors import NotFoundError
from runnel.ports.backend import Backend
from runnel.ports.blobs import BlobStore
from runnel.testing.conformance.suite import Suite

KEYS = [
    "x1/node/1",
    "../../outside",
    "/etc/passwd",
    "x1/../../outside",
    "a\\b:c*?\n",
    "ü/日本",
    "x" * 1_000,
    "CASE/a",
    "case/A",
]


class BlobRules(Suite):
    @pytest.fixture
    def blobs(self, backend: Backend) -> BlobStore:
        return backend.blobs

    @pytest.mark.parametrize("key", KEYS)
    async def test_any_key_keeps_its_content(self, blobs: BlobStore, key: str) -> None:
        data = bytes(range(256)) * 40

        await blobs.put(key, data)

        assert await blobs.get(key) == data

    async def test_keys_that_look_alike_are_told_apart(self, blobs: BlobStore) -> None:
        for key in KEYS:
            await blobs.put(key, key.encode())

        assert [(await blobs.get(key)).decode() for key in KEYS] == KEYS

    async def test_an_empty_blob_is_a_blob(self, blobs: BlobStore) -> None:
        await blobs.put("x1/empty", b"")

        assert await blobs.get("x1/empty") == b""

    async def test_putting_a_key_again_replaces_it_whole(self, blobs: BlobStore) -> None:
        await blobs.put("x1/a", b"a long first value")
        await blobs.put("x1/a", b"short")

        assert await blobs.get("x1/a") == b"short"

    async def test_an_unknown_key_is_not_found(self, blobs: BlobStore) -> None:
        with pytest.raises(NotFoundError) as caught:
            await blobs.get("x1/nothing")

        assert (caught.value.kind, caught.value.name) == ("blob", "x1/nothing")

    async def test_deleting_by_prefix_leaves_the_others(self, blobs: BlobStore) -> None:
        for key in ("x1/a", "x1/b/c", "x10/a", "x2/a"):
            await blobs.put(key, b"data")

        assert await blobs.delete("x1/") == 2

        assert await blobs.get("x10/a") == await blobs.get("x2/a") == b"data"
        with pytest.raises(NotFoundError):
            await blobs.get("x1/b/c")

    async def test_deleting_by_a_part_of_a_name_finds_all_that_begin_so(
        self, blobs: BlobStore
    ) -> None:
        for key in ("x1/a", "x10/a", "y/a"):
            await blobs.put(key, b"data")

        assert await blobs.delete("x1") == 2

    async def test_deleting_what_is_not_there_deletes_nothing(self, blobs: BlobStore) -> None:
        assert await blobs.delete("nobody/") == 0
