"""Lists of executions: filtered, in pages, and counted."""

from collections.abc import Iterable, Mapping

import pytest
from msgspec import structs

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.listing import all_headers
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.ports.cursor import Cursor, cursor_at
from runnel.ports.store import Commit, Header
from runnel.testing.conformance.suite import Owner, Suite
from runnel.testing.conformance.values import header

S = ExecutionState


class ListRules(Suite):
    async def test_lists_are_newest_first_and_ties_are_broken_by_id(
        self, archive: Archive, owner: Owner
    ) -> None:
        ages = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0}
        headers = [header(name, created_at=age) for name, age in ages.items()]

        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive) == ["d", "b", "c", "a"]

    async def test_pages_follow_each_other_without_gap_or_overlap(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header(f"x{number:02}", created_at=float(number // 3)) for number in range(20)]
        await owner.commit(Commit(sequence=0, headers=headers))

        found = [each async for each in all_headers(archive, ExecutionFilter(limit=7))]

        assert ids_of(found) == [f"x{number:02}" for number in reversed(range(20))]

    async def test_pages_of_a_filtered_list_follow_each_other(
        self, archive: Archive, owner: Owner
    ) -> None:
        states = [S.RUNNING, S.FAILED, S.COMPLETED]
        headers = [
            header(f"x{number:02}", created_at=float(number), state=states[number % 3])
            for number in range(12)
        ]
        await owner.commit(Commit(sequence=0, headers=headers))
        wanted = ExecutionFilter(states=(S.RUNNING, S.FAILED), limit=3)

        found = [each async for each in all_headers(archive, wanted)]

        assert ids_of(found) == [f"x{n:02}" for n in reversed(range(12)) if n % 3 != 2]

    async def test_lists_are_filtered_by_state(self, archive: Archive, owner: Owner) -> None:
        headers = [header(state.lower(), state=state) for state in S]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive, S.FAILED) == ["failed"]
        assert await listed(archive, S.FAILED, S.PENDING) == ["pending", "failed"]

    async def test_lists_are_filtered_by_workflow(self, archive: Archive, owner: Owner) -> None:
        headers = [header("a", workflow="one"), header("b", workflow="two")]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive, workflow="two") == ["b"]
        assert await listed(archive, S.RUNNING, workflow="two") == ["b"]

    async def test_children_are_listed_only_when_asked_for(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header("x1"), header("x1.a.1", parent="x1", created_at=2.0)]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive) == ["x1"]
        assert await listed(archive, with_children=True) == ["x1.a.1", "x1"]

    async def test_a_page_says_whether_there_are_more(self, archive: Archive, owner: Owner) -> None:
        headers = [header(f"x{number}", created_at=float(number)) for number in range(4)]
        await owner.commit(Commit(sequence=0, headers=headers))

        first = await archive.list_headers(ExecutionFilter(limit=3))
        rest = await archive.list_headers(ExecutionFilter(limit=3, after=first.next))
        exact = await archive.list_headers(ExecutionFilter(limit=4))

        assert (ids_of(first), first.next is None) == (["x3", "x2", "x1"], False)
        assert (ids_of(rest), rest.next) == (["x0"], None)
        assert (len(exact.headers), exact.next) == (4, None)

    async def test_a_page_goes_on_behind_an_execution_that_is_gone(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header(name, created_at=2.0) for name in ("a", "c", "e")]
        headers += [header("old", created_at=1.0), header("new", created_at=3.0)]
        await owner.commit(Commit(sequence=0, headers=headers))

        found = {
            place: await listed(archive, after=cursor_at(place))
            for place in ((2.0, "d"), (2.0, "a"), (2.5, "x"), (1.5, "x"), (0.5, "x"))
        }

        assert found == {
            (2.0, "d"): ["c", "a", "old"],
            (2.0, "a"): ["old"],
            (2.5, "x"): ["e", "c", "a", "old"],
            (1.5, "x"): ["old"],
            (0.5, "x"): [],
        }

    async def test_what_begins_meanwhile_does_not_move_a_page(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header(f"x{number}", created_at=float(number)) for number in range(4)]
        await owner.commit(Commit(sequence=0, headers=headers))
        first = await archive.list_headers(ExecutionFilter(limit=2))

        await owner.commit(Commit(sequence=0, headers=[header("x9", created_at=9.0)]))

        assert await listed(archive, after=first.next) == ["x1", "x0"]

    @pytest.mark.parametrize("after", ["x1", "", "W10", "W10=", "é", "MTIz", "x" * 5_000])
    async def test_a_place_that_no_page_gave_is_refused(self, archive: Archive, after: str) -> None:
        with pytest.raises(InputError, match="expected what the page before it gave"):
            await archive.list_headers(ExecutionFilter(after=Cursor(after)))

    async def test_lists_are_filtered_by_labels_all_of_which_must_match(
        self, archive: Archive, owner: Owner
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
        headers = [labelled(name, each) for name, each in labels.items()]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive, labels={"team": "red"}) == ["b", "a"]
        assert await listed(archive, labels={"team": "red", "env": "prod"}) == ["a"]
        assert await listed(archive, S.RUNNING, labels={"env": "prod"}, workflow="w") == ["c", "a"]
        assert await listed(archive, S.FAILED, labels={"env": "prod"}) == []
        assert await listed(archive, labels=labels["g"]) == ["g"]
        assert await listed(archive, labels={"team": ""}) == ["g"]
        assert await listed(archive, labels={"nobody": "has"}) == []

    async def test_lists_are_filtered_by_time_with_the_first_moment_and_without_the_last(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header(f"x{number}", created_at=float(number)) for number in range(6)]
        await owner.commit(Commit(sequence=0, headers=headers))
        first = await archive.list_headers(
            ExecutionFilter(created_from=1.0, created_before=4.0, limit=2)
        )

        assert await listed(archive, created_from=4.0) == ["x5", "x4"]
        assert await listed(archive, created_before=2.0) == ["x1", "x0"]
        assert await listed(archive, created_from=2.0, created_before=4.0) == ["x3", "x2"]
        assert await listed(archive, S.RUNNING, created_from=2.5, created_before=2.6) == []
        assert ids_of(first) == ["x3", "x2"]
        assert await listed(archive, created_from=1.0, after=first.next) == ["x1"]

    async def test_a_text_is_found_in_id_workflow_label_and_error_in_any_case(
        self, archive: Archive, owner: Owner
    ) -> None:
        failed = structs.replace(header("c1", state=S.FAILED), error="ValueError: ÜBER 100%")
        headers = [
            header("Needle"),
            header("a1", workflow="find-the-needle"),
            labelled("b1", {"k": "a NEEDLE here"}),
            failed,
            labelled("d1", {"needle": "only a key"}),
        ]
        await owner.commit(Commit(sequence=0, headers=headers))

        assert await listed(archive, text="needle") == ["b1", "a1", "Needle"]
        assert await listed(archive, text="über 100%") == ["c1"]
        assert await listed(archive, S.FAILED, text="NEEDLE") == []
        assert await listed(archive, text="_") == []

    async def test_reruns_and_children_of_an_execution_are_found(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [
            header("x1"),
            structs.replace(header("x2", created_at=2.0), rerun_of=ExecutionId("x1")),
            structs.replace(header("x3", created_at=3.0), rerun_of=ExecutionId("x1")),
            structs.replace(header("x4", created_at=4.0), rerun_of=ExecutionId("x2")),
            header("x1.a.1", parent="x1", created_at=5.0),
            header("x1.a.2", parent="x1", created_at=4.0, state=S.FAILED),
            header("x1.a.1.b.1", parent="x1.a.1", created_at=6.0),
            header("x11.a.1", parent="x11", created_at=6.0),
        ]
        await owner.commit(Commit(sequence=0, headers=headers))
        children = ExecutionFilter(parent=ExecutionId("x1"), limit=1)

        assert await listed(archive, rerun_of="x1") == ["x3", "x2"]
        assert await listed(archive, rerun_of="x3") == []
        assert await listed(archive, parent="x1") == ["x1.a.1", "x1.a.2"]
        assert await listed(archive, S.FAILED, parent="x1") == ["x1.a.2"]
        paged = [each async for each in all_headers(archive, children)]
        assert ids_of(paged) == ["x1.a.1", "x1.a.2"]

    async def test_a_search_that_finds_little_goes_on_where_it_stopped(
        self, archive: Archive, owner: Owner
    ) -> None:
        names = [f"x{number:05}" for number in range(1_500)]
        for first in range(0, len(names), 500):
            headers = [
                labelled(name, {"kind": "rare" if name.endswith("001") else "common"})
                for name in names[first : first + 500]
            ]
            await owner.commit(Commit(sequence=0, headers=headers))
        rare = ExecutionFilter(labels={"kind": "rare"}, limit=1)
        common = ExecutionFilter(labels={"kind": "common"}, text="X000", limit=30)

        assert ids_of([each async for each in all_headers(archive, rare)]) == ["x01001", "x00001"]
        found = ids_of([each async for each in all_headers(archive, common)])
        assert found == [f"x{number:05}" for number in reversed(range(100)) if number != 1]

    async def test_executions_are_counted_by_state(self, archive: Archive, owner: Owner) -> None:
        states = [S.FAILED, S.FAILED, S.RUNNING, S.COMPLETED]
        headers = [
            header(f"x{number}", state=state, created_at=float(number), workflow=f"w{number % 2}")
            for number, state in enumerate(states)
        ]
        headers += [header("x0.a.1", parent="x0"), labelled("y", {"k": "v"})]
        await owner.commit(Commit(sequence=0, headers=headers))
        parent = ExecutionId("x0")

        assert await counted(archive) == {"FAILED": 2, "RUNNING": 2, "COMPLETED": 1}
        assert await counted(archive, with_children=True) == {
            "FAILED": 2,
            "RUNNING": 3,
            "COMPLETED": 1,
        }
        assert await counted(archive, workflow="w1") == {"FAILED": 1, "COMPLETED": 1}
        assert await counted(archive, created_from=1.0, created_before=3.0) == {
            "FAILED": 1,
            "RUNNING": 2,
        }
        assert await counted(archive, labels={"k": "v"}) == {"RUNNING": 1}
        assert await counted(archive, text="X1") == {"FAILED": 1}
        assert await counted(archive, parent=parent) == {"RUNNING": 1}
        only = await archive.count_headers(ExecutionFilter(states=(S.FAILED, S.PENDING)))
        assert {state: count.number for state, count in only.items()} == {"FAILED": 2, "PENDING": 0}
        assert not any(count.is_least for count in only.values())


async def listed(
    archive: Archive,
    *states: ExecutionState,
    **given: object,
) -> list[str]:
    wanted = structs.replace(ExecutionFilter(states=states), **given)
    return ids_of(await archive.list_headers(wanted))


async def counted(archive: Archive, **given: object) -> dict[str, int]:
    """Without the states that none is in."""
    counts = await archive.count_headers(structs.replace(ExecutionFilter(), **given))
    return {state: count.number for state, count in counts.items() if count.number}


def ids_of(headers: Iterable[Header]) -> list[str]:
    return [each.execution_id for each in headers]


def labelled(name: str, labels: Mapping[str, str]) -> Header:
    return structs.replace(header(name), labels=dict(labels))
