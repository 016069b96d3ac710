"""Rules for lists and counts of executions, for histories and for definitions."""

from collections.abc import Iterable, Mapping

import msgspec
import pytest
from msgspec import structs

from runnel.client.execution_lists import iter_headers
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import Archive, ExecutionFilter, PageCursor, encode_cursor
from runnel.ports.store import Commit, ExecutionHeader, HistoryRecord, Store
from runnel.testing.conformance.suite import ROOT_ID, ConformanceFixtures, LeaseOwner, make_header

S = ExecutionState


class ExecutionListRules(ConformanceFixtures):
    async def test_lists_are_newest_first_and_ties_are_broken_by_id(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        ages = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0}
        headers = [make_header(name, created_at=age) for name, age in ages.items()]

        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive) == ["d", "b", "c", "a"]

    async def test_pages_follow_each_other_without_gap_or_overlap(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [
            make_header(f"x{number:02}", created_at=float(number // 3)) for number in range(20)
        ]
        await owner.commit(Commit(sequence=0, headers=headers))

        listed = [header async for header in iter_headers(archive, ExecutionFilter(limit=7))]

        assert get_ids(listed) == [f"x{number:02}" for number in reversed(range(20))]

    async def test_pages_of_a_filtered_list_follow_each_other(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        states = [S.RUNNING, S.FAILED, S.COMPLETED]
        headers = [
            make_header(f"x{number:02}", created_at=float(number), state=states[number % 3])
            for number in range(12)
        ]
        await owner.commit(Commit(sequence=0, headers=headers))
        criteria = ExecutionFilter(states=(S.RUNNING, S.FAILED), limit=3)

        listed = [header async for header in iter_headers(archive, criteria)]

        assert get_ids(listed) == [f"x{n:02}" for n in reversed(range(12)) if n % 3 != 2]

    async def test_lists_are_filtered_by_state(self, archive: Archive, owner: LeaseOwner) -> None:
        headers = [make_header(state.lower(), state=state) for state in S]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive, S.FAILED) == ["failed"]
        assert await list_ids(archive, S.FAILED, S.PENDING) == ["pending", "failed"]

    async def test_lists_are_filtered_by_workflow(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header("a", workflow="one"), make_header("b", workflow="two")]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive, workflow="two") == ["b"]
        assert await list_ids(archive, S.RUNNING, workflow="two") == ["b"]

    async def test_children_are_listed_only_with_the_option_with_children(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header("x1"), make_header("x1.a.1", parent="x1", created_at=2.0)]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive) == ["x1"]
        assert await list_ids(archive, with_children=True) == ["x1.a.1", "x1"]

    async def test_a_page_has_a_cursor_exactly_if_there_are_more_executions(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header(f"x{number}", created_at=float(number)) for number in range(4)]
        await owner.commit(Commit(sequence=0, headers=headers))

        first = await archive.list_headers(ExecutionFilter(limit=3))
        second = await archive.list_headers(ExecutionFilter(limit=3, after=first.next))
        exact = await archive.list_headers(ExecutionFilter(limit=4))

        assert (get_ids(first), first.next is None) == (["x3", "x2", "x1"], False)
        assert (get_ids(second), second.next) == (["x0"], None)
        assert (len(exact.headers), exact.next) == (4, None)

    async def test_a_page_continues_after_an_execution_that_was_deleted(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header(name, created_at=2.0) for name in ("a", "c", "e")]
        headers += [make_header("old", created_at=1.0), make_header("new", created_at=3.0)]
        await owner.commit(Commit(sequence=0, headers=headers))

        pages = {
            position: await list_ids(archive, after=encode_cursor(position))
            for position in ((2.0, "d"), (2.0, "a"), (2.5, "x"), (1.5, "x"), (0.5, "x"))
        }

        assert pages == {
            (2.0, "d"): ["c", "a", "old"],
            (2.0, "a"): ["old"],
            (2.5, "x"): ["e", "c", "a", "old"],
            (1.5, "x"): ["old"],
            (0.5, "x"): [],
        }

    async def test_new_executions_do_not_shift_the_next_page(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header(f"x{number}", created_at=float(number)) for number in range(4)]
        await owner.commit(Commit(sequence=0, headers=headers))
        first = await archive.list_headers(ExecutionFilter(limit=2))

        await owner.commit(Commit(sequence=0, headers=[make_header("x9", created_at=9.0)]))

        assert await list_ids(archive, after=first.next) == ["x1", "x0"]

    @pytest.mark.parametrize("after", ["x1", "", "W10", "W10=", "é", "MTIz", "x" * 5_000])
    async def test_a_cursor_that_no_page_returned_is_refused(
        self, archive: Archive, after: str
    ) -> None:
        with pytest.raises(InputError, match="the cursor of a list is not valid"):
            await archive.list_headers(ExecutionFilter(after=PageCursor(after)))

    async def test_lists_are_filtered_by_labels_all_of_which_must_match(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        labels = {
            "a": {"team": "red", "env": "prod"},
            "b": {"team": "red", "env": "test"},
            "c": {"team": "blue", "env": "prod"},
            "d": {"team": "redder"},
            "e": {"env": "red"},
            "f": {},
            "g": {"ü": "\0'\"\\u0000 ", "team": ""},
        }
        headers = [make_labelled_header(name, pairs) for name, pairs in labels.items()]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive, labels={"team": "red"}) == ["b", "a"]
        assert await list_ids(archive, labels={"team": "red", "env": "prod"}) == ["a"]
        assert await list_ids(archive, S.RUNNING, labels={"env": "prod"}, workflow="w") == [
            "c",
            "a",
        ]
        assert await list_ids(archive, S.FAILED, labels={"env": "prod"}) == []
        assert await list_ids(archive, labels=labels["g"]) == ["g"]
        assert await list_ids(archive, labels={"team": ""}) == ["g"]
        assert await list_ids(archive, labels={"unknown": "has"}) == []

    async def test_lists_are_filtered_by_time_including_the_start_and_excluding_the_end(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header(f"x{number}", created_at=float(number)) for number in range(6)]
        await owner.commit(Commit(sequence=0, headers=headers))
        first = await archive.list_headers(
            ExecutionFilter(created_from=1.0, created_before=4.0, limit=2)
        )

        assert await list_ids(archive, created_from=4.0) == ["x5", "x4"]
        assert await list_ids(archive, created_before=2.0) == ["x1", "x0"]
        assert await list_ids(archive, created_from=2.0, created_before=4.0) == ["x3", "x2"]
        assert await list_ids(archive, S.RUNNING, created_from=2.5, created_before=2.6) == []
        assert get_ids(first) == ["x3", "x2"]
        assert await list_ids(archive, created_from=1.0, after=first.next) == ["x1"]

    async def test_a_text_is_found_in_id_workflow_label_and_error_in_any_case(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        failed = structs.replace(make_header("c1", state=S.FAILED), error="ValueError: ÜBER 100%")
        headers = [
            make_header("Needle"),
            make_header("a1", workflow="find-the-needle"),
            make_labelled_header("b1", {"k": "a NEEDLE here"}),
            failed,
            make_labelled_header("d1", {"needle": "only a key"}),
        ]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await list_ids(archive, text="needle") == ["b1", "a1", "Needle"]
        assert await list_ids(archive, text="über 100%") == ["c1"]
        assert await list_ids(archive, S.FAILED, text="NEEDLE") == []
        assert await list_ids(archive, text="_") == []

    async def test_reruns_and_children_of_an_execution_are_found(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [
            make_header("x1"),
            structs.replace(make_header("x2", created_at=2.0), rerun_of=ExecutionId("x1")),
            structs.replace(make_header("x3", created_at=3.0), rerun_of=ExecutionId("x1")),
            structs.replace(make_header("x4", created_at=4.0), rerun_of=ExecutionId("x2")),
            make_header("x1.a.1", parent="x1", created_at=5.0),
            make_header("x1.a.2", parent="x1", created_at=4.0, state=S.FAILED),
            make_header("x1.a.1.b.1", parent="x1.a.1", created_at=6.0),
            make_header("x11.a.1", parent="x11", created_at=6.0),
        ]
        await owner.commit(Commit(sequence=0, headers=headers))
        children = ExecutionFilter(parent=ExecutionId("x1"), limit=1)

        assert await list_ids(archive, rerun_of="x1") == ["x3", "x2"]
        assert await list_ids(archive, rerun_of="x3") == []
        assert await list_ids(archive, parent="x1") == ["x1.a.1", "x1.a.2"]
        assert await list_ids(archive, S.FAILED, parent="x1") == ["x1.a.2"]
        paged = [header async for header in iter_headers(archive, children)]
        assert get_ids(paged) == ["x1.a.1", "x1.a.2"]

    async def test_a_search_with_few_matches_continues_where_it_stopped(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        names = [f"x{number:05}" for number in range(1_500)]
        for first in range(0, len(names), 500):
            headers = [
                make_labelled_header(name, {"kind": "rare" if name.endswith("001") else "common"})
                for name in names[first : first + 500]
            ]
            await owner.commit(Commit(sequence=0, headers=headers))
        rare = ExecutionFilter(labels={"kind": "rare"}, limit=1)
        common = ExecutionFilter(labels={"kind": "common"}, text="X000", limit=30)

        assert get_ids([header async for header in iter_headers(archive, rare)]) == [
            "x01001",
            "x00001",
        ]
        ids = get_ids([header async for header in iter_headers(archive, common)])
        assert ids == [f"x{number:05}" for number in reversed(range(100)) if number != 1]

    async def test_executions_are_counted_by_state(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        states = [S.FAILED, S.FAILED, S.RUNNING, S.COMPLETED]
        headers = [
            make_header(
                f"x{number}", state=state, created_at=float(number), workflow=f"w{number % 2}"
            )
            for number, state in enumerate(states)
        ]
        headers += [make_header("x0.a.1", parent="x0"), make_labelled_header("y", {"k": "v"})]
        await owner.commit(Commit(sequence=0, headers=headers))
        parent = ExecutionId("x0")

        assert await count_by_state(archive) == {"FAILED": 2, "RUNNING": 2, "COMPLETED": 1}
        assert await count_by_state(archive, with_children=True) == {
            "FAILED": 2,
            "RUNNING": 3,
            "COMPLETED": 1,
        }
        assert await count_by_state(archive, workflow="w1") == {"FAILED": 1, "COMPLETED": 1}
        assert await count_by_state(archive, created_from=1.0, created_before=3.0) == {
            "FAILED": 1,
            "RUNNING": 2,
        }
        assert await count_by_state(archive, labels={"k": "v"}) == {"RUNNING": 1}
        assert await count_by_state(archive, text="X1") == {"FAILED": 1}
        assert await count_by_state(archive, parent=parent) == {"RUNNING": 1}
        only = await archive.count_headers(ExecutionFilter(states=(S.FAILED, S.PENDING)))
        assert {state: count.number for state, count in only.items()} == {"FAILED": 2, "PENDING": 0}
        assert not any(count.is_least for count in only.values())


async def list_ids(
    archive: Archive,
    *states: ExecutionState,
    **fields: object,
) -> list[str]:
    criteria = structs.replace(ExecutionFilter(states=states), **fields)
    return get_ids(await archive.list_headers(criteria))


async def count_by_state(archive: Archive, **fields: object) -> dict[str, int]:
    """Returns the number of executions per state, without states that have no executions."""
    counts = await archive.count_headers(structs.replace(ExecutionFilter(), **fields))
    return {state: count.number for state, count in counts.items() if count.number}


def get_ids(headers: Iterable[ExecutionHeader]) -> list[str]:
    return [header.execution_id for header in headers]


def make_labelled_header(name: str, labels: Mapping[str, str]) -> ExecutionHeader:
    return structs.replace(make_header(name), labels=dict(labels))


# -- histories and definitions -----------------------------------------------------------------

STATE = ExecutionState


class ArchiveLookupRules(ConformanceFixtures):
    async def test_a_header_is_kept_with_all_its_fields(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        full = ExecutionHeader(
            execution_id=ExecutionId("x1.a.1"),
            workflow="w",
            version=7,
            definition="d",
            state=STATE.FAILED,
            created_at=1.25,
            started_at=2.5,
            finished_at=3.75,
            parent_id=ROOT_ID,
            labels={"ü": "x", "team": ""},
            error="ValueError: no",
            rerun_of=ExecutionId("x0"),
        )

        await owner.commit(Commit(sequence=0, headers=[full, make_header()]))

        assert await archive.get_header(ExecutionId("x1.a.1")) == full
        assert await archive.get_header(ROOT_ID) == make_header()

    async def test_writing_a_header_again_replaces_it(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        later = msgspec.structs.replace(
            make_header(state=STATE.FAILED), started_at=2.0, finished_at=3.0, error="no"
        )
        await owner.commit(Commit(sequence=0, headers=[make_header(state=STATE.PENDING)]))

        await owner.commit(Commit(sequence=0, headers=[later]))

        assert await archive.get_header(ROOT_ID) == later

    async def test_an_unknown_execution_has_no_header(self, archive: Archive) -> None:
        assert await archive.get_header(ExecutionId("unknown")) is None

    async def test_several_headers_are_read_in_one_call(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [
            make_header("x1"),
            make_header("x2", state=STATE.FAILED),
            make_header("x1.a.1", parent="x1"),
        ]
        await owner.commit(Commit(sequence=0, headers=headers))

        by_id = await archive.get_headers(
            [ExecutionId(execution_id) for execution_id in ("x2", "no", "x1.a.1")]
        )

        assert by_id == {"x2": headers[1], "x1.a.1": headers[2]}
        assert await archive.get_headers([]) == {}

    async def test_a_history_is_read_from_a_given_entry_on(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        entries = [b"one", b"two", b"three"]
        histories = [HistoryRecord(aggregate_id=ROOT_ID, entry=entry) for entry in entries]
        other = HistoryRecord(aggregate_id="x2", entry=b"other")
        await owner.commit(Commit(sequence=0, headers=[make_header()], histories=histories[:2]))
        await owner.commit(Commit(sequence=0, histories=[other, histories[2]]))

        tails = [list(await archive.load(ROOT_ID, after=after)) for after in range(5)]

        assert tails == [entries, entries[1:], entries[2:], [], []]
        assert list(await archive.load(ExecutionId("unknown"), after=1)) == []

    async def test_running_executions_come_oldest_first(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        headers = [
            make_header("x3", created_at=3.0, state=STATE.RUNNING),
            make_header("x1", created_at=1.0, state=STATE.PENDING),
            make_header("x2", created_at=2.0, state=STATE.COMPLETED),
            make_header("x4", created_at=1.0, state=STATE.RUNNING),
            make_header("x5", created_at=0.0, state=STATE.CANCELLED),
        ]

        await owner.commit(Commit(sequence=0, headers=headers))

        assert list(await store.running(owner.partition)) == ["x4", "x3"]

    async def test_an_execution_that_ends_is_no_longer_running(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, headers=[make_header()]))

        await owner.commit(Commit(sequence=0, headers=[make_header(state=STATE.COMPLETED)]))

        assert list(await store.running(owner.partition)) == []

    async def test_executions_are_found_by_the_beginning_of_their_id(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        names = ["ab1", "ab2", "ab3", "ac1", "a%1", "a_1"]
        await owner.commit(Commit(sequence=0, headers=[make_header(name) for name in names]))

        assert list(await archive.find_ids("ac")) == ["ac1"]
        assert list(await archive.find_ids("a_")) == ["a_1"]
        assert list(await archive.find_ids("ab")) == ["ab1", "ab2"]
        assert list(await archive.find_ids("ab", limit=9)) == ["ab1", "ab2", "ab3"]
        assert list(await archive.find_ids("b")) == []

    async def test_a_prefix_without_a_dot_finds_no_children(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        names = ["x1", "x1.a.1", "x1.b.1"]
        await owner.commit(Commit(sequence=0, headers=[make_header(name) for name in names]))

        assert list(await archive.find_ids("x")) == ["x1"]
        assert list(await archive.find_ids("x1.b")) == ["x1.b.1"]

    async def test_storing_the_same_content_again_keeps_its_version(self, archive: Archive) -> None:
        versions = [
            await put_definition(archive, "w", "h1"),
            await put_definition(archive, "w", "h1"),
        ]

        assert versions == [1, 1]

    async def test_changed_content_gets_the_next_version(self, archive: Archive) -> None:
        versions = [await put_definition(archive, "w", name) for name in ("h1", "h2", "h1", "h3")]

        assert versions == [1, 2, 1, 3]

    async def test_each_workflow_name_has_its_own_version_numbers(self, archive: Archive) -> None:
        await put_definition(archive, "one", "h1")

        assert await put_definition(archive, "two", "h2") == 1

    async def test_a_definition_is_found_by_its_hash(self, archive: Archive) -> None:
        await put_definition(archive, "w", "h1")
        await put_definition(archive, "w", "h2")

        definition = await archive.get_definition(DefinitionHash("h2"))

        assert definition is not None
        assert (definition.name, definition.version, definition.document) == (
            "w",
            2,
            b"document of h2",
        )
        assert await archive.get_definition(DefinitionHash("h3")) is None

    async def test_workflows_are_listed_by_name_each_in_its_newest_version(
        self, archive: Archive
    ) -> None:
        for name, hash_ in (("b", "h1"), ("a", "h2"), ("b", "h3"), ("c", "h4"), ("b", "h1")):
            await put_definition(archive, name, hash_)

        first = await archive.list_workflows(limit=2)
        second = await archive.list_workflows(after="b", limit=2)

        assert [(workflow.name, workflow.version, workflow.hash) for workflow in first] == [
            ("a", 1, "h2"),
            ("b", 2, "h3"),
        ]
        assert [workflow.document for workflow in second] == [b"document of h4"]

    async def test_versions_of_a_workflow_come_newest_first(self, archive: Archive) -> None:
        for hash_ in ("h1", "h2", "h3"):
            await put_definition(archive, "w", hash_)

        versions = await archive.list_versions("w")

        assert [(definition.version, definition.hash) for definition in versions] == [
            (3, "h3"),
            (2, "h2"),
            (1, "h1"),
        ]
        assert [definition.version for definition in await archive.list_versions("w", limit=1)] == [
            3
        ]
        assert not await archive.list_versions("x")

    async def test_a_version_of_a_workflow_is_found_by_its_number(self, archive: Archive) -> None:
        for name, hash_ in (("w", "h1"), ("v", "h2"), ("w", "h3")):
            await put_definition(archive, name, hash_)

        definitions = [await archive.find_version("w", version) for version in (1, 2)]

        assert [
            definition and (definition.version, definition.hash) for definition in definitions
        ] == [(1, "h1"), (2, "h3")]
        assert [await archive.find_version("w", version) for version in (-1, 0, 3)] == [None] * 3
        assert await archive.find_version("x", 1) is None

    async def test_deleted_versions_are_found_only_by_their_hash(self, archive: Archive) -> None:
        for name, hash_ in (("v", "h0"), ("w", "h1"), ("w", "h2"), ("x", "h3")):
            await put_definition(archive, name, hash_)

        deleted = [await archive.delete_versions(name) for name in ("w", "w", "unknown")]

        kept = [await archive.get_definition(DefinitionHash(hash_)) for hash_ in ("h1", "h2")]
        assert deleted == [2, 0, 0]
        assert [definition and (definition.name, definition.version) for definition in kept] == [
            ("w", 1),
            ("w", 2),
        ]
        assert [definition.name for definition in await archive.list_workflows(limit=2)] == [
            "v",
            "x",
        ]
        assert not await archive.list_versions("w")
        assert [await archive.find_version("w", version) for version in (-2, -1, 1, 2)] == [
            None
        ] * 4

    async def test_content_stored_after_a_deletion_gets_the_next_version(
        self, archive: Archive
    ) -> None:
        for hash_ in ("h1", "h2"):
            await put_definition(archive, "w", hash_)
        await archive.delete_versions("w")

        versions = [await put_definition(archive, "w", hash_) for hash_ in ("h1", "h3", "h1", "h2")]

        listed = [
            (definition.version, definition.hash) for definition in await archive.list_versions("w")
        ]
        definitions = [await archive.find_version("w", version) for version in range(1, 7)]
        assert versions == [3, 4, 3, 5]
        assert listed == [(5, "h2"), (4, "h3"), (3, "h1")]
        assert [definition and definition.hash for definition in definitions] == [
            None,
            None,
            "h1",
            "h3",
            "h2",
            None,
        ]
        assert [workflow.version for workflow in await archive.list_workflows()] == [5]
        assert await archive.delete_versions("w") == 3
        assert await put_definition(archive, "w", "h3") == 6


async def put_definition(archive: Archive, name: str, hash_: str) -> int:
    return await archive.put_definition(
        name, DefinitionHash(hash_), f"document of {hash_}".encode()
    )
