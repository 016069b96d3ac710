"""Executions and definitions are found again."""

import msgspec

from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import Archive
from runnel.ports.store import Commit, Header, History, Store
from runnel.testing.conformance.suite import Owner, Suite
from runnel.testing.conformance.values import ROOT, header

S = ExecutionState


class QueryRules(Suite):
    async def test_a_header_is_kept_with_all_its_fields(
        self, archive: Archive, owner: Owner
    ) -> None:
        full = Header(
            execution_id=ExecutionId("x1.a.1"),
            workflow="w",
            version=7,
            definition="d",
            state=S.FAILED,
            created_at=1.25,
            started_at=2.5,
            finished_at=3.75,
            parent_id=ROOT,
            labels={"ü": "x", "team": ""},
            error="ValueError: no",
            rerun_of=ExecutionId("x0"),
        )

        await owner.commit(Commit(sequence=0, headers=[full, header()]))

        assert await archive.get_header(ExecutionId("x1.a.1")) == full
        assert await archive.get_header(ROOT) == header()

    async def test_a_header_that_is_written_again_is_replaced(
        self, archive: Archive, owner: Owner
    ) -> None:
        later = msgspec.structs.replace(
            header(state=S.FAILED), started_at=2.0, finished_at=3.0, error="no"
        )
        await owner.commit(Commit(sequence=0, headers=[header(state=S.PENDING)]))

        await owner.commit(Commit(sequence=0, headers=[later]))

        assert await archive.get_header(ROOT) == later

    async def test_an_unknown_execution_has_no_header(self, archive: Archive) -> None:
        assert await archive.get_header(ExecutionId("nobody")) is None

    async def test_many_headers_are_read_at_once(self, archive: Archive, owner: Owner) -> None:
        headers = [header("x1"), header("x2", state=S.FAILED), header("x1.a.1", parent="x1")]
        await owner.commit(Commit(sequence=0, headers=headers))

        found = await archive.get_headers([ExecutionId(each) for each in ("x2", "no", "x1.a.1")])

        assert found == {"x2": headers[1], "x1.a.1": headers[2]}
        assert await archive.get_headers([]) == {}

    async def test_a_history_is_read_on_behind_what_was_read(
        self, archive: Archive, owner: Owner
    ) -> None:
        entries = [b"one", b"two", b"three"]
        histories = [History(aggregate_id=ROOT, entry=each) for each in entries]
        other = History(aggregate_id="x2", entry=b"other")
        await owner.commit(Commit(sequence=0, headers=[header()], histories=histories[:2]))
        await owner.commit(Commit(sequence=0, histories=[other, histories[2]]))

        found = [list(await archive.load(ROOT, after=after)) for after in range(5)]

        assert found == [entries, entries[1:], entries[2:], [], []]
        assert list(await archive.load(ExecutionId("nobody"), after=1)) == []

    async def test_running_executions_come_oldest_first(self, store: Store, owner: Owner) -> None:
        headers = [
            header("x3", created_at=3.0, state=S.RUNNING),
            header("x1", created_at=1.0, state=S.PENDING),
            header("x2", created_at=2.0, state=S.COMPLETED),
            header("x4", created_at=1.0, state=S.RUNNING),
            header("x5", created_at=0.0, state=S.CANCELLED),
        ]

        await owner.commit(Commit(sequence=0, headers=headers))

        assert list(await store.running(owner.partition)) == ["x4", "x3"]

    async def test_an_execution_that_ends_is_no_longer_running(
        self, store: Store, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, headers=[header()]))

        await owner.commit(Commit(sequence=0, headers=[header(state=S.COMPLETED)]))

        assert list(await store.running(owner.partition)) == []

    async def test_executions_are_found_by_the_beginning_of_their_id(
        self, archive: Archive, owner: Owner
    ) -> None:
        names = ["ab1", "ab2", "ab3", "ac1", "a%1", "a_1"]
        await owner.commit(Commit(sequence=0, headers=[header(name) for name in names]))

        assert list(await archive.find_ids("ac")) == ["ac1"]
        assert list(await archive.find_ids("a_")) == ["a_1"]
        assert list(await archive.find_ids("ab")) == ["ab1", "ab2"]
        assert list(await archive.find_ids("ab", limit=9)) == ["ab1", "ab2", "ab3"]
        assert list(await archive.find_ids("b")) == []

    async def test_a_prefix_without_a_dot_finds_no_children(
        self, archive: Archive, owner: Owner
    ) -> None:
        names = ["x1", "x1.a.1", "x1.b.1"]
        await owner.commit(Commit(sequence=0, headers=[header(name) for name in names]))

        assert list(await archive.find_ids("x")) == ["x1"]
        assert list(await archive.find_ids("x1.b")) == ["x1.b.1"]

    async def test_the_same_content_is_the_same_version(self, archive: Archive) -> None:
        versions = [await put(archive, "w", "h1"), await put(archive, "w", "h1")]

        assert versions == [1, 1]

    async def test_changed_content_is_the_next_version(self, archive: Archive) -> None:
        versions = [await put(archive, "w", name) for name in ("h1", "h2", "h1", "h3")]

        assert versions == [1, 2, 1, 3]

    async def test_versions_are_counted_for_each_name(self, archive: Archive) -> None:
        await put(archive, "one", "h1")

        assert await put(archive, "two", "h2") == 1

    async def test_a_definition_is_found_by_its_hash(self, archive: Archive) -> None:
        await put(archive, "w", "h1")
        await put(archive, "w", "h2")

        found = await archive.get_definition(DefinitionHash("h2"))

        assert found is not None
        assert (found.name, found.version, found.document) == ("w", 2, b"document of h2")
        assert await archive.get_definition(DefinitionHash("h3")) is None

    async def test_workflows_are_listed_by_name_each_in_its_newest_version(
        self, archive: Archive
    ) -> None:
        for name, hash_ in (("b", "h1"), ("a", "h2"), ("b", "h3"), ("c", "h4"), ("b", "h1")):
            await put(archive, name, hash_)

        first = await archive.list_workflows(limit=2)
        rest = await archive.list_workflows(after="b", limit=2)

        assert [(each.name, each.version, each.hash) for each in first] == [
            ("a", 1, "h2"),
            ("b", 2, "h3"),
        ]
        assert [each.document for each in rest] == [b"document of h4"]

    async def test_versions_of_a_workflow_come_newest_first(self, archive: Archive) -> None:
        for hash_ in ("h1", "h2", "h3"):
            await put(archive, "w", hash_)

        found = await archive.list_versions("w")

        assert [(each.version, each.hash) for each in found] == [(3, "h3"), (2, "h2"), (1, "h1")]
        assert [each.version for each in await archive.list_versions("w", limit=1)] == [3]
        assert not await archive.list_versions("x")

    async def test_a_version_of_a_workflow_is_found_by_its_number(self, archive: Archive) -> None:
        for name, hash_ in (("w", "h1"), ("v", "h2"), ("w", "h3")):
            await put(archive, name, hash_)

        found = [await archive.find_version("w", version) for version in (1, 2)]

        assert [each and (each.version, each.hash) for each in found] == [(1, "h1"), (2, "h3")]
        assert [await archive.find_version("w", version) for version in (-1, 0, 3)] == [None] * 3
        assert await archive.find_version("x", 1) is None

    async def test_deleted_versions_are_found_by_their_hash_only(self, archive: Archive) -> None:
        for name, hash_ in (("v", "h0"), ("w", "h1"), ("w", "h2"), ("x", "h3")):
            await put(archive, name, hash_)

        deleted = [await archive.delete_versions(name) for name in ("w", "w", "nobody")]

        kept = [await archive.get_definition(DefinitionHash(each)) for each in ("h1", "h2")]
        assert deleted == [2, 0, 0]
        assert [each and (each.name, each.version) for each in kept] == [("w", 1), ("w", 2)]
        assert [each.name for each in await archive.list_workflows(limit=2)] == ["v", "x"]
        assert not await archive.list_versions("w")
        assert [await archive.find_version("w", each) for each in (-2, -1, 1, 2)] == [None] * 4

    async def test_what_is_put_after_a_deletion_is_the_next_version(self, archive: Archive) -> None:
        for hash_ in ("h1", "h2"):
            await put(archive, "w", hash_)
        await archive.delete_versions("w")

        versions = [await put(archive, "w", each) for each in ("h1", "h3", "h1", "h2")]

        listed = [(each.version, each.hash) for each in await archive.list_versions("w")]
        found = [await archive.find_version("w", each) for each in range(1, 7)]
        assert versions == [3, 4, 3, 5]
        assert listed == [(5, "h2"), (4, "h3"), (3, "h1")]
        assert [each and each.hash for each in found] == [None, None, "h1", "h3", "h2", None]
        assert [each.version for each in await archive.list_workflows()] == [5]
        assert await archive.delete_versions("w") == 3
        assert await put(archive, "w", "h3") == 6


async def put(archive: Archive, name: str, hash_: str) -> int:
    return await archive.put_definition(
        name, DefinitionHash(hash_), f"document of {hash_}".encode()
    )
