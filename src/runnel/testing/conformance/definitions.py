"""Rules for executions of deleted workflows, and for dead letters.

An execution of a workflow is accepted unless the workflow was deleted before the submit.
"""

import asyncio

import msgspec
import pytest

from runnel.core.commands import CreateExecution
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.errors import NotFoundError
from runnel.ports import Backend
from runnel.ports.archive import ALL_DEAD_LETTERS, Archive, DeadLetterFilter, ExecutionFilter
from runnel.ports.store import Commit
from runnel.testing.conformance.suite import (
    ConformanceFixtures,
    LeaseOwner,
    make_dead_letter,
    make_header,
    make_token,
)

RACES = 20


class StoredDefinitionRules(ConformanceFixtures):
    async def test_an_execution_of_a_stored_definition_is_accepted(
        self, backend: Backend, owner: LeaseOwner
    ) -> None:
        await put_definition(backend, "h1")

        await backend.mailbox.send([make_creation("x1", "h1")], requires_definition=True)

        assert await backend.archive.get_header(ExecutionId("x1")) is not None
        assert len(await owner.read()) == 1

    async def test_an_execution_of_a_deleted_definition_is_refused_and_leaves_nothing(
        self, backend: Backend, owner: LeaseOwner
    ) -> None:
        await put_definition(backend, "h1")
        await backend.archive.delete_versions("w")

        for hash_ in ("h1", "unknown"):
            with pytest.raises(NotFoundError, match="version 1 of workflow 'w'"):
                await backend.mailbox.send(
                    [make_creation("x1", hash_)],
                    blobs={"x1/input": b"large"},
                    requires_definition=True,
                )

        assert await backend.archive.get_header(ExecutionId("x1")) is None
        assert not await owner.read()
        with pytest.raises(NotFoundError):
            await backend.blobs.get("x1/input")

    async def test_a_definition_stored_again_after_a_deletion_can_be_executed(
        self, backend: Backend
    ) -> None:
        await put_definition(backend, "h1")
        await backend.archive.delete_versions("w")
        await put_definition(backend, "h1")

        await backend.mailbox.send([make_creation("x1", "h1")], requires_definition=True)

        assert await backend.archive.get_header(ExecutionId("x1")) is not None

    async def test_a_refused_execution_does_not_affect_concurrent_ones(
        self, backend: Backend
    ) -> None:
        for hash_, name in (("h1", "w"), ("h2", "v")):
            await put_definition(backend, hash_, name)
        await backend.archive.delete_versions("w")
        refused, accepted = (
            make_creation("x1", "h1"),
            [make_creation(f"x{number}", "h2") for number in range(2, 6)],
        )

        outcomes = await asyncio.gather(
            *(
                backend.mailbox.send([command], requires_definition=True)
                for command in (refused, *accepted)
            ),
            return_exceptions=True,
        )

        assert [type(outcome) for outcome in outcomes] == [NotFoundError, *[type(None)] * 4]
        listed = await backend.archive.list_headers(ExecutionFilter())
        assert {header.execution_id for header in listed} == {
            header.execution_id for header in accepted
        }

    async def test_after_a_deletion_every_execution_accepted_before_is_listed(
        self, backend: Backend
    ) -> None:
        """Submit and deletion run at the same time.

        Their order is random, but one of the two must come first.
        """
        for number in range(RACES):
            await put_definition(backend, "h1")
            id_ = f"x{number}"
            sending = backend.mailbox.send([make_creation(id_, "h1")], requires_definition=True)
            outcome, is_listed = await asyncio.gather(
                sending, delete_and_check(backend, id_), return_exceptions=True
            )

            is_accepted = outcome is None
            assert is_accepted or isinstance(outcome, NotFoundError)
            assert is_listed == is_accepted
            header = await backend.archive.get_header(ExecutionId(id_))
            assert (header is not None) == is_accepted


async def delete_and_check(backend: Backend, id_: str) -> bool:
    """Deletes the workflow; returns True if the execution was listed right after the deletion."""
    await asyncio.sleep(0)
    await backend.archive.delete_versions("w")
    return await backend.archive.get_header(ExecutionId(id_)) is not None


async def put_definition(backend: Backend, hash_: str, name: str = "w") -> None:
    await backend.archive.put_definition(name, DefinitionHash(hash_), b"document")


def make_creation(id_: str, hash_: str) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(id_),
        workflow="w" if hash_ != "h2" else "v",
        definition=DefinitionHash(hash_),
        version=1,
        created_at=1.0,
    )


# -- dead letters are stored, listed page by page, and deleted ----------------------------------

NODES = "abcdefgh"


class DeadLetterRules(ConformanceFixtures):
    async def test_dead_letters_come_newest_first(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        letters = [make_dead_letter("b", rejected_at=2.0), make_dead_letter("c", rejected_at=3.0)]
        await owner.commit(Commit(sequence=0, dead_letters=letters))
        await owner.commit(
            Commit(sequence=0, dead_letters=[make_dead_letter("a", rejected_at=1.0)])
        )

        listed = await archive.list_dead_letters()

        assert [letter.token.node_id for letter in listed] == ["c", "b", "a"]
        assert len(await archive.list_dead_letters(DeadLetterFilter(limit=2))) == 2

    async def test_a_dead_letter_is_kept_with_all_its_fields(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        odd = msgspec.structs.replace(make_dead_letter("ü\n/x"), workflow="w", queue="q ü")
        await owner.commit(Commit(sequence=0, dead_letters=[make_dead_letter("a"), odd]))

        letters = await archive.list_dead_letters()

        assert sorted(letters, key=lambda letter: letter.token.node_id) == [
            make_dead_letter("a"),
            odd,
        ]

    async def test_dead_letters_with_the_same_time_are_read_page_by_page(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        letters = [
            make_dead_letter(node, rejected_at=len(NODES) - at // 3)
            for at, node in enumerate(NODES)
        ]
        await owner.commit(Commit(sequence=0, dead_letters=letters))

        seen = await read_all_pages(archive, size=2)

        assert len(seen) == len(NODES)
        assert {letter.token.node_id for letter in seen} == set(NODES)
        ages = [letter.rejected_at for letter in seen]
        assert ages == sorted(ages, reverse=True)

    async def test_the_next_page_is_found_after_the_last_letter_was_deleted(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        letters = [make_dead_letter(node, rejected_at=float(ord(node))) for node in "abcd"]
        await owner.commit(Commit(sequence=0, dead_letters=letters))
        first = await archive.list_dead_letters(DeadLetterFilter(limit=2))
        await archive.delete_dead_letters(first)

        second = await archive.list_dead_letters(DeadLetterFilter(after=first[-1]))

        assert [letter.token.node_id for letter in second] == ["b", "a"]

    async def test_dead_letters_are_filtered_by_queue_workflow_execution_and_age(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        headers = [make_header("x1", workflow="v"), make_header("x12", workflow="w")]
        letters = [
            make_letter_of("x1", "a", queue="q", workflow="v", rejected_at=1.0),
            make_letter_of("x1", "b", queue="r", workflow="v", rejected_at=2.0),
            make_letter_of("x12", "c", queue="q", workflow="w", rejected_at=3.0),
        ]
        await owner.commit(Commit(sequence=0, headers=headers, dead_letters=letters))

        matches = {
            "acb": await list_and_count(archive, DeadLetterFilter()),
            "q": await list_and_count(archive, DeadLetterFilter(queue="q")),
            "v": await list_and_count(archive, DeadLetterFilter(workflow="v")),
            "x1": await list_and_count(archive, DeadLetterFilter(execution="x1")),
            "x12": await list_and_count(archive, DeadLetterFilter(execution="x12")),
            "before": await list_and_count(archive, DeadLetterFilter(before=2.0)),
            "all": await list_and_count(
                archive, DeadLetterFilter(queue="q", workflow="w", execution="x12")
            ),
            "none": await list_and_count(archive, DeadLetterFilter(queue="r", workflow="w")),
            "unknown": await list_and_count(archive, DeadLetterFilter(queue="unknown")),
        }

        assert matches == {
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

    async def test_dead_letters_are_deleted_once_and_others_stay(
        self, archive: Archive, owner: LeaseOwner
    ) -> None:
        letters = [
            make_dead_letter("a"),
            make_dead_letter("b"),
            make_letter_of("x1", "c", queue="q"),
        ]
        await owner.commit(Commit(sequence=0, dead_letters=letters))

        deleted = [
            await archive.delete_dead_letters(
                [letters[0], letters[2], make_dead_letter("unknown")]
            ),
            await archive.delete_dead_letters(letters),
            await archive.delete_dead_letters(letters),
            await archive.delete_dead_letters([]),
        ]

        assert deleted == [2, 1, 0, 0]
        assert list(await archive.list_dead_letters()) == []


def make_letter_of(
    execution_id: str,
    node: str,
    *,
    queue: str = "default",
    workflow: str = "w",
    rejected_at: float = 1.0,
) -> DeadLetter:
    return msgspec.structs.replace(
        make_dead_letter(node, rejected_at=rejected_at),
        token=make_token(node, execution_id=ExecutionId(execution_id)),
        queue=queue,
        workflow=workflow,
    )


async def list_and_count(archive: Archive, letter_filter: DeadLetterFilter) -> tuple[str, int]:
    letters = await archive.list_dead_letters(letter_filter)
    return "".join(letter.token.node_id for letter in letters), await archive.count_dead_letters(
        letter_filter
    )


async def read_all_pages(archive: Archive, *, size: int) -> list[DeadLetter]:
    seen: list[DeadLetter] = []
    criteria = msgspec.structs.replace(ALL_DEAD_LETTERS, limit=size)
    while page := await archive.list_dead_letters(criteria):
        seen += page
        criteria = msgspec.structs.replace(criteria, after=page[-1])
    return seen
