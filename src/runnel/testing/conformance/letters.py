"""Dead letters are kept, found page by page, and deleted."""

import msgspec

from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId
from runnel.ports.archive import ALL_LETTERS, Archive, LetterFilter
from runnel.ports.store import Commit
from runnel.testing.conformance.suite import Owner, Suite
from runnel.testing.conformance.values import header, letter, token

NODES = "abcdefgh"


class LetterRules(Suite):
    async def test_dead_letters_come_newest_first(self, archive: Archive, owner: Owner) -> None:
        letters = [letter("b", rejected_at=2.0), letter("c", rejected_at=3.0)]
        await owner.commit(Commit(sequence=0, dead_letters=letters))
        await owner.commit(Commit(sequence=0, dead_letters=[letter("a", rejected_at=1.0)]))

        found = await archive.list_dead_letters()

        assert [each.token.node_id for each in found] == ["c", "b", "a"]
        assert len(await archive.list_dead_letters(LetterFilter(limit=2))) == 2

    async def test_a_dead_letter_is_kept_with_all_its_fields(
        self, archive: Archive, owner: Owner
    ) -> None:
        odd = msgspec.structs.replace(letter("ü\n/x"), workflow="w", queue="q ü")
        await owner.commit(Commit(sequence=0, dead_letters=[letter("a"), odd]))

        found = await archive.list_dead_letters()

        assert sorted(found, key=lambda each: each.token.node_id) == [letter("a"), odd]

    async def test_dead_letters_are_read_page_by_page_also_those_of_one_moment(
        self, archive: Archive, owner: Owner
    ) -> None:
        letters = [letter(node, rejected_at=len(NODES) - at // 3) for at, node in enumerate(NODES)]
        await owner.commit(Commit(sequence=0, dead_letters=letters))

        seen = await pages(archive, size=2)

        assert len(seen) == len(NODES)
        assert {each.token.node_id for each in seen} == set(NODES)
        ages = [each.rejected_at for each in seen]
        assert ages == sorted(ages, reverse=True)

    async def test_the_next_page_is_found_when_the_last_letter_is_gone(
        self, archive: Archive, owner: Owner
    ) -> None:
        letters = [letter(node, rejected_at=float(ord(node))) for node in "abcd"]
        await owner.commit(Commit(sequence=0, dead_letters=letters))
        first = await archive.list_dead_letters(LetterFilter(limit=2))
        await archive.delete_dead_letters(first)

        rest = await archive.list_dead_letters(LetterFilter(after=first[-1]))

        assert [each.token.node_id for each in rest] == ["b", "a"]

    async def test_dead_letters_are_wanted_by_queue_workflow_execution_and_age(
        self, archive: Archive, owner: Owner
    ) -> None:
        headers = [header("x1", workflow="v"), header("x12", workflow="w")]
        letters = [
            of("x1", "a", queue="q", workflow="v", rejected_at=1.0),
            of("x1", "b", queue="r", workflow="v", rejected_at=2.0),
            of("x12", "c", queue="q", workflow="w", rejected_at=3.0),
        ]
        await owner.commit(Commit(sequence=0, headers=headers, dead_letters=letters))

        found = {
            "acb": await names(archive, LetterFilter()),
            "q": await names(archive, LetterFilter(queue="q")),
            "v": await names(archive, LetterFilter(workflow="v")),
            "x1": await names(archive, LetterFilter(execution="x1")),
            "x12": await names(archive, LetterFilter(execution="x12")),
            "before": await names(archive, LetterFilter(before=2.0)),
            "all": await names(archive, LetterFilter(queue="q", workflow="w", execution="x12")),
            "none": await names(archive, LetterFilter(queue="r", workflow="w")),
            "unknown": await names(archive, LetterFilter(queue="nobody")),
        }

        assert found == {
            "acb": ("cba", 3),
            "q": ("ca", 2),
            "v": ("ba", 2),
            "x1": ("cba", 3),
            "x12": ("c", 1),
            "before": ("a", 1),
            "all": ("c", 1),
            "none": ("", 0),
            "unknown": ("", 0),
        }

    async def test_letters_are_deleted_once_and_others_stay(
        self, archive: Archive, owner: Owner
    ) -> None:
        letters = [letter("a"), letter("b"), of("x1", "c", queue="q")]
        await owner.commit(Commit(sequence=0, dead_letters=letters))

        deleted = [
            await archive.delete_dead_letters([letters[0], letters[2], letter("nobody")]),
            await archive.delete_dead_letters(letters),
            await archive.delete_dead_letters(letters),
            await archive.delete_dead_letters([]),
        ]

        assert deleted == [2, 1, 0, 0]
        assert list(await archive.list_dead_letters()) == []


def of(
    execution_id: str,
    node: str,
    *,
    queue: str = "default",
    workflow: str = "w",
    rejected_at: float = 1.0,
) -> DeadLetter:
    return msgspec.structs.replace(
        letter(node, rejected_at=rejected_at),
        token=token(node, execution_id=ExecutionId(execution_id)),
        queue=queue,
        workflow=workflow,
    )


async def names(archive: Archive, wanted: LetterFilter) -> tuple[str, int]:
    found = await archive.list_dead_letters(wanted)
    return "".join(each.token.node_id for each in found), await archive.count_dead_letters(wanted)


async def pages(archive: Archive, *, size: int) -> list[DeadLetter]:
    seen: list[DeadLetter] = []
    wanted = msgspec.structs.replace(ALL_LETTERS, limit=size)
    while page := await archive.list_dead_letters(wanted):
        seen += page
        wanted = msgspec.structs.replace(wanted, after=page[-1])
    return seen
