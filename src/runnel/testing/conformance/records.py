"""Records are changed by those who know what is there, and by one of them at a time."""

import asyncio

import pytest

from runnel.errors import ConflictError
from runnel.ports.backend import Backend
from runnel.ports.records import Record, Records
from runnel.testing.conformance.suite import Suite

KEYS = ["a", "a.b", "a b", "B", "é", "日本", "with\nlines", "{braces}", "x" * 500, "\U0001f600"]
WRITERS = 8
ROUNDS = 5


class RecordRules(Suite):
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

        found = await records.get("one", key)

        assert found is not None
        assert (found.key, found.data) == (key, key.encode())

    async def test_each_change_has_a_higher_revision(self, records: Records) -> None:
        first = await records.put("one", "k", b"1", revision=0)
        second = await records.put("one", "k", b"", revision=first)

        found = await records.get("one", "k")

        assert second > first
        assert found == Record(kind="one", key="k", data=b"", revision=second)

    async def test_what_somebody_else_has_changed_is_not_replaced(self, records: Records) -> None:
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

    async def test_what_is_gone_is_not_changed(self, records: Records) -> None:
        revision = await records.put("one", "k", b"1", revision=0)
        await records.delete("one", "k")

        with pytest.raises(ConflictError) as caught:
            await records.put("one", "k", b"2", revision=revision)

        assert caught.value.found == 0
        assert await records.get("one", "k") is None

    async def test_a_revision_does_not_come_back(self, records: Records) -> None:
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
        assert [each.key for each in await records.list("one")] == ["kept"]

    async def test_what_was_changed_since_is_not_deleted(self, records: Records) -> None:
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

        found: list[Record] = []
        while page := await records.list("one", after=found[-1].key if found else "", limit=3):
            found += page

        assert [each.key for each in found] == sorted(KEYS, key=str.encode)
        assert all(each.kind == "one" and each.data == each.key.encode() for each in found)
        assert list(await records.list("none")) == []

    async def test_a_page_begins_behind_a_key_that_is_gone(self, records: Records) -> None:
        for key in ("a", "b", "c"):
            await records.put("one", key, b"", revision=0)
        await records.delete("one", "b")

        assert [each.key for each in await records.list("one", after="b")] == ["c"]

    async def test_of_many_who_make_a_record_at_once_one_does(self, records: Records) -> None:
        outcomes = await asyncio.gather(
            *(records.put("one", "k", b"%d" % n, revision=0) for n in range(WRITERS)),
            return_exceptions=True,
        )

        given = {n: found for n, found in enumerate(outcomes) if isinstance(found, int)}
        refused = [found for found in outcomes if isinstance(found, ConflictError)]
        assert (len(given), len(refused)) == (1, WRITERS - 1)
        [(winner, revision)] = given.items()
        assert await records.get("one", "k") == Record(
            kind="one", key="k", data=b"%d" % winner, revision=revision
        )

    async def test_no_change_is_lost_however_many_make_one_at_once(self, records: Records) -> None:
        await records.put("one", "k", b"0", revision=0)

        async def count_one() -> None:
            while True:
                found = await records.get("one", "k")
                assert found is not None
                try:
                    await records.put(
                        "one", "k", b"%d" % (int(found.data) + 1), revision=found.revision
                    )
                except ConflictError:
                    continue
                return

        await asyncio.gather(*(count_one() for _ in range(WRITERS * ROUNDS)))

        found = await records.get("one", "k")
        assert found is not None
        assert int(found.data) == WRITERS * ROUNDS
