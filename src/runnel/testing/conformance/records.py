"""Rules for records, blobs, rate tokens, cached results and request windows.

A caller must pass the current revision of a record to change the record.
"""

import asyncio

import pytest

from runnel.errors import ConflictError, NotFoundError
from runnel.ports import Backend
from runnel.ports.records import BlobStore, RandomAccessBlobStore, Record, Records
from runnel.ports.store import TaskQueue
from runnel.testing.conformance.suite import ConformanceFixtures
from runnel.testing.harness import Harness

KEYS = ["a", "a.b", "a b", "B", "é", "日本", "with\nlines", "{braces}", "x" * 500, "\U0001f600"]
WRITERS = 8
ROUNDS = 5


class RecordRules(ConformanceFixtures):
    @pytest.fixture
    def records(self, backend: Backend) -> Records:
        return backend.records

    async def test_a_record_is_found_by_kind_and_key(self, records: Records) -> None:
        data = bytes(range(256))

        revision = await records.put("one", "k", data, revision=0)

        assert revision > 0
        assert await records.get("one", "k") == Record(
            kind="one", key="k", data=data, revision=revision
        )
        assert await records.get("other", "k") is None
        assert await records.get("one", "other") is None

    @pytest.mark.parametrize("key", KEYS)
    async def test_any_key_keeps_its_data(self, records: Records, key: str) -> None:
        for other in KEYS:
            await records.put("one", other, other.encode(), revision=0)

        record = await records.get("one", key)

        assert record is not None
        assert (record.key, record.data) == (key, key.encode())

    async def test_each_change_has_a_higher_revision(self, records: Records) -> None:
        first = await records.put("one", "k", b"1", revision=0)
        second = await records.put("one", "k", b"", revision=first)

        record = await records.get("one", "k")

        assert second > first
        assert record == Record(kind="one", key="k", data=b"", revision=second)

    async def test_a_record_that_was_changed_meanwhile_is_not_replaced(
        self, records: Records
    ) -> None:
        first = await records.put("one", "k", b"1", revision=0)
        second = await records.put("one", "k", b"2", revision=first)

        conflicts = []
        for expected in (first, second + 1, 0):
            with pytest.raises(ConflictError) as caught:
                await records.put("one", "k", b"3", revision=expected)
            conflicts.append((caught.value.expected, caught.value.found))

        assert conflicts == [(first, second), (second + 1, second), (0, second)]
        assert await records.get("one", "k") == Record(
            kind="one", key="k", data=b"2", revision=second
        )

    async def test_a_deleted_record_can_not_be_changed(self, records: Records) -> None:
        revision = await records.put("one", "k", b"1", revision=0)
        await records.delete("one", "k")

        with pytest.raises(ConflictError) as caught:
            await records.put("one", "k", b"2", revision=revision)

        assert caught.value.found == 0
        assert await records.get("one", "k") is None

    async def test_a_revision_is_never_used_again(self, records: Records) -> None:
        former = await records.put("one", "k", b"1", revision=0)
        await records.delete("one", "k")
        current = await records.put("one", "k", b"2", revision=0)

        with pytest.raises(ConflictError):
            await records.put("one", "k", b"3", revision=former)

        assert current > former

    async def test_a_record_is_deleted_once(self, records: Records) -> None:
        revision = await records.put("one", "k", b"1", revision=0)
        await records.put("one", "kept", b"1", revision=0)

        deleted = [await records.delete("one", "k", revision=revision) for _ in range(2)]
        deleted.append(await records.delete("one", "k"))

        assert deleted == [True, False, False]
        assert [record.key for record in await records.list("one")] == ["kept"]

    async def test_a_record_that_was_changed_meanwhile_is_not_deleted(
        self, records: Records
    ) -> None:
        first = await records.put("one", "k", b"1", revision=0)
        second = await records.put("one", "k", b"2", revision=first)

        with pytest.raises(ConflictError) as caught:
            await records.delete("one", "k", revision=first)

        assert (caught.value.expected, caught.value.found) == (first, second)
        assert await records.get("one", "k") is not None

    async def test_records_are_listed_by_key_page_by_page(self, records: Records) -> None:
        for key in KEYS:
            await records.put("one", key, key.encode(), revision=0)
        await records.put("other", "a", b"", revision=0)

        listed: list[Record] = []
        while page := await records.list("one", after=listed[-1].key if listed else "", limit=3):
            listed += page

        assert [record.key for record in listed] == sorted(KEYS, key=str.encode)
        assert all(record.kind == "one" and record.data == record.key.encode() for record in listed)
        assert list(await records.list("none")) == []

    async def test_a_page_of_records_continues_after_a_deleted_key(self, records: Records) -> None:
        for key in ("a", "b", "c"):
            await records.put("one", key, b"", revision=0)
        await records.delete("one", "b")

        assert [record.key for record in await records.list("one", after="b")] == ["c"]

    async def test_only_one_of_many_concurrent_creations_succeeds(self, records: Records) -> None:
        outcomes = await asyncio.gather(
            *(records.put("one", "k", b"%d" % n, revision=0) for n in range(WRITERS)),
            return_exceptions=True,
        )

        revisions = {n: outcome for n, outcome in enumerate(outcomes) if isinstance(outcome, int)}
        refused = [outcome for outcome in outcomes if isinstance(outcome, ConflictError)]
        assert (len(revisions), len(refused)) == (1, WRITERS - 1)
        [(winner, revision)] = revisions.items()
        assert await records.get("one", "k") == Record(
            kind="one", key="k", data=b"%d" % winner, revision=revision
        )

    async def test_no_concurrent_change_of_a_record_is_lost(self, records: Records) -> None:
        await records.put("one", "k", b"0", revision=0)

        async def increment() -> None:
            while True:
                record = await records.get("one", "k")
                assert record is not None
                try:
                    await records.put(
                        "one", "k", b"%d" % (int(record.data) + 1), revision=record.revision
                    )
                except ConflictError:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(WRITERS * ROUNDS)))

        record = await records.get("one", "k")
        assert record is not None
        assert int(record.data) == WRITERS * ROUNDS


# -- blobs are stored completely, under any key -------------------------------------------------

BLOB_KEYS = [
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


class BlobRules(ConformanceFixtures):
    @pytest.fixture
    def blobs(self, backend: Backend) -> RandomAccessBlobStore:
        return backend.blobs

    @pytest.mark.parametrize("key", BLOB_KEYS)
    async def test_any_key_keeps_its_content(self, blobs: BlobStore, key: str) -> None:
        data = bytes(range(256)) * 40

        await blobs.put(key, data)

        assert await blobs.get(key) == data

    async def test_similar_keys_have_separate_blobs(self, blobs: BlobStore) -> None:
        for key in BLOB_KEYS:
            await blobs.put(key, key.encode())

        assert [(await blobs.get(key)).decode() for key in BLOB_KEYS] == BLOB_KEYS

    async def test_an_empty_blob_is_stored(self, blobs: BlobStore) -> None:
        await blobs.put("x1/empty", b"")

        assert await blobs.get("x1/empty") == b""

    async def test_storing_a_blob_again_replaces_it_completely(self, blobs: BlobStore) -> None:
        await blobs.put("x1/a", b"a long first value")
        await blobs.put("x1/a", b"short")

        assert await blobs.get("x1/a") == b"short"

    async def test_an_unknown_key_is_not_found(self, blobs: BlobStore) -> None:
        with pytest.raises(NotFoundError) as caught:
            await blobs.get("x1/nothing")

        assert (caught.value.kind, caught.value.name) == ("blob", "x1/nothing")

    async def test_a_part_of_a_blob_ends_with_the_blob(self, blobs: RandomAccessBlobStore) -> None:
        await blobs.put("x1/a", b"0123456789")

        parts = [
            (await blobs.read_parts(["x1/a"], start=start, size=4))[0] for start in (0, 4, 8, 10)
        ]

        assert parts == [b"0123", b"4567", b"89", b""]

    async def test_a_large_blob_is_read_in_parts(self, blobs: RandomAccessBlobStore) -> None:
        data = bytes(range(256)) * 2_000
        await blobs.put("x1/a", data)

        parts = [
            (await blobs.read_parts(["x1/a"], start=start, size=100_000))[0] or b""
            for start in range(0, len(data), 100_000)
        ]

        assert b"".join(parts) == data

    async def test_parts_of_many_blobs_are_read_in_the_order_of_their_keys(
        self, blobs: RandomAccessBlobStore
    ) -> None:
        keys = [f"x{number}/{BLOB_KEYS[number % len(BLOB_KEYS)]}" for number in range(250)]
        for key in keys:
            await blobs.put(key, key.encode() * 3)

        parts = await blobs.read_parts(keys, start=1, size=20)

        assert parts == [(key.encode() * 3)[1:21] for key in keys]

    async def test_an_unknown_blob_has_no_part_and_an_empty_one_an_empty_part(
        self, blobs: RandomAccessBlobStore
    ) -> None:
        await blobs.put("x1/empty", b"")
        await blobs.put("x1/a", b"data")

        parts = await blobs.read_parts(["x1/nothing", "x1/a", "x1/empty"], start=0, size=2)

        assert parts == [None, b"da", b""]

    async def test_deleting_by_prefix_keeps_other_blobs(self, blobs: BlobStore) -> None:
        for key in ("x1/a", "x1/b/c", "x10/a", "x2/a"):
            await blobs.put(key, b"data")

        assert await blobs.delete("x1/") == 2

        assert await blobs.get("x10/a") == await blobs.get("x2/a") == b"data"
        with pytest.raises(NotFoundError):
            await blobs.get("x1/b/c")

    async def test_a_prefix_without_a_slash_deletes_all_keys_that_begin_with_it(
        self, blobs: BlobStore
    ) -> None:
        for key in ("x1/a", "x10/a", "y/a"):
            await blobs.put(key, b"data")

        assert await blobs.delete("x1") == 2

    async def test_deleting_an_unknown_prefix_deletes_nothing(self, blobs: BlobStore) -> None:
        assert await blobs.delete("unknown/") == 0


# -- rate tokens come from buckets that all workers share --------------------------------------

# A store with its own clock does not stand still between two calls.
TOLERANCE_S = 0.1


class RateLimitRules(ConformanceFixtures):
    async def test_a_burst_of_tokens_needs_no_wait(self, tasks: TaskQueue) -> None:
        waits = [await take_token(tasks, burst=3) for _ in range(3)]

        assert waits == [0.0, 0.0, 0.0]

    async def test_tokens_beyond_the_burst_are_issued_at_the_rate(self, tasks: TaskQueue) -> None:
        waits = [await take_token(tasks, rate=2.0, burst=1) for _ in range(4)]

        assert waits == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=TOLERANCE_S)

    async def test_no_token_is_taken_if_the_wait_is_too_long(self, tasks: TaskQueue) -> None:
        await take_token(tasks, rate=1.0, burst=1)

        refused = [await take_token(tasks, rate=1.0, burst=1, wait_s_max=0.5) for _ in range(3)]

        assert refused == pytest.approx([1.0, 1.0, 1.0], abs=TOLERANCE_S)
        assert await take_token(tasks, rate=1.0, burst=1) == pytest.approx(1.0, abs=TOLERANCE_S)

    async def test_the_bucket_refills_up_to_its_burst(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        for _ in range(2):
            await take_token(tasks, rate=1.0, burst=2)

        await harness.advance_time(100.0)

        waits = [await take_token(tasks, rate=1.0, burst=2) for _ in range(3)]
        assert waits == pytest.approx([0.0, 0.0, 1.0], abs=TOLERANCE_S)

    async def test_each_tag_has_its_own_bucket(self, tasks: TaskQueue) -> None:
        await take_token(tasks, tag="a", burst=1)

        assert await take_token(tasks, tag="b", burst=1) == 0.0


async def take_token(
    tasks: TaskQueue, *, tag: str = "api", rate: float = 1.0, burst: int, wait_s_max: float = 60.0
) -> float:
    return await tasks.take_token(tag, rate_per_second=rate, burst=burst, wait_s_max=wait_s_max)


# -- cached results, which any worker can use until they expire ---------------------------------

DATA = b'{"n": 1}'


class CachedResultRules(ConformanceFixtures):
    async def test_a_cached_result_is_found_until_it_expires(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        await tasks.put_cached_result("k", DATA, ttl_s=60.0)

        results = [await tasks.get_cached_result("k"), await tasks.get_cached_result("other")]
        await harness.advance_time(59.0)
        results.append(await tasks.get_cached_result("k"))
        await harness.advance_time(2.0)
        results.append(await tasks.get_cached_result("k"))

        assert results == [DATA, None, DATA, None]

    async def test_storing_a_cached_result_again_replaces_it_and_its_expiry(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        await tasks.put_cached_result("k", DATA, ttl_s=10.0)

        await tasks.put_cached_result("k", b"2", ttl_s=100.0)

        await harness.advance_time(50.0)
        assert await tasks.get_cached_result("k") == b"2"


# -- requests are counted in a sliding window, for all processes that share the store -----------

# A store with its own clock does not stand still between two calls.
WINDOW_TOLERANCE_S = 0.5
WINDOW_S = 60.0


class RequestWindowRules(ConformanceFixtures):
    async def test_requests_up_to_the_limit_are_admitted(self, backend: Backend) -> None:
        waits = [await admit_request(backend, limit=3) for _ in range(3)]

        assert waits == [0.0, 0.0, 0.0]

    async def test_a_request_above_the_limit_waits_until_the_first_one_leaves_the_window(
        self, backend: Backend
    ) -> None:
        for _ in range(3):
            await admit_request(backend, limit=3)

        waits = [await admit_request(backend, limit=3) for _ in range(2)]

        assert waits == pytest.approx([WINDOW_S, WINDOW_S], abs=WINDOW_TOLERANCE_S)

    async def test_the_window_slides(self, harness: Harness, backend: Backend) -> None:
        await admit_request(backend, limit=2)
        await harness.advance_time(WINDOW_S / 2)
        await admit_request(backend, limit=2)
        await harness.advance_time(WINDOW_S / 2)

        waits = [await admit_request(backend, limit=2) for _ in range(2)]

        assert waits == pytest.approx([0.0, WINDOW_S / 2], abs=WINDOW_TOLERANCE_S)

    async def test_refused_requests_are_not_counted(
        self, harness: Harness, backend: Backend
    ) -> None:
        await admit_request(backend, limit=1)
        for _ in range(5):
            await admit_request(backend, limit=1)

        await harness.advance_time(WINDOW_S)

        assert await admit_request(backend, limit=1) == 0.0

    async def test_a_lower_limit_applies_at_once(self, backend: Backend) -> None:
        for _ in range(3):
            await admit_request(backend, limit=3)

        assert await admit_request(backend, limit=1) == pytest.approx(
            WINDOW_S, abs=WINDOW_TOLERANCE_S
        )

    async def test_each_caller_has_its_own_window(self, backend: Backend) -> None:
        await admit_request(backend, limit=1)

        assert await admit_request(backend, caller="another", limit=1) == 0.0

    async def test_concurrent_requests_are_counted_separately(self, backend: Backend) -> None:
        waits = await asyncio.gather(*(admit_request(backend, limit=5) for _ in range(20)))

        assert waits.count(0.0) == 5


async def admit_request(backend: Backend, *, caller: str = "ada", limit: int) -> float:
    return await backend.windows.admit(caller, limit=limit, window_s=WINDOW_S)
