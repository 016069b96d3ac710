"""An execution of a stored workflow is begun, or the workflow was deleted before: never both."""

import asyncio

import pytest

from runnel.core.commands import CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.errors import NotFoundError
from runnel.ports.archive import ExecutionFilter
from runnel.ports.backend import Backend
from runnel.testing.conformance.suite import Owner, Suite

RACES = 20


class StoredDefinitionRules(Suite):
    async def test_an_execution_of_a_stored_definition_is_begun(
        self, backend: Backend, owner: Owner
    ) -> None:
        await put(backend, "h1")

        await backend.mailbox.send([create("x1", "h1")], of_stored=True)

        assert await backend.archive.get_header(ExecutionId("x1")) is not None
        assert len(await owner.read()) == 1

    async def test_an_execution_of_a_deleted_definition_is_refused_and_leaves_nothing(
        self, backend: Backend, owner: Owner
    ) -> None:
        await put(backend, "h1")
        await backend.archive.delete_versions("w")

        for hash_ in ("h1", "unknown"):
            with pytest.raises(NotFoundError, match="version 1 of workflow 'w'"):
                await backend.mailbox.send(
                    [create("x1", hash_)], blobs={"x1/input": b"large"}, of_stored=True
                )

        assert await backend.archive.get_header(ExecutionId("x1")) is None
        assert not await owner.read()
        with pytest.raises(NotFoundError):
            await backend.blobs.get("x1/input")

    async def test_what_is_put_again_after_a_deletion_can_be_begun(self, backend: Backend) -> None:
        await put(backend, "h1")
        await backend.archive.delete_versions("w")
        await put(backend, "h1")

        await backend.mailbox.send([create("x1", "h1")], of_stored=True)

        assert await backend.archive.get_header(ExecutionId("x1")) is not None

    async def test_one_who_is_refused_does_not_keep_others_from_beginning(
        self, backend: Backend
    ) -> None:
        for hash_, name in (("h1", "w"), ("h2", "v")):
            await put(backend, hash_, name)
        await backend.archive.delete_versions("w")
        mine, others = create("x1", "h1"), [create(f"x{number}", "h2") for number in range(2, 6)]

        outcomes = await asyncio.gather(
            *(backend.mailbox.send([each], of_stored=True) for each in (mine, *others)),
            return_exceptions=True,
        )

        assert [type(each) for each in outcomes] == [NotFoundError, *[type(None)] * 4]
        listed = await backend.archive.list_headers(ExecutionFilter())
        assert {each.execution_id for each in listed} == {each.execution_id for each in others}

    async def test_whoever_deletes_finds_all_that_were_begun_before(self, backend: Backend) -> None:
        """Which of the two comes first is left to chance; that one of them does is not."""
        for number in range(RACES):
            await put(backend, "h1")
            id_ = f"x{number}"
            sending = backend.mailbox.send([create(id_, "h1")], of_stored=True)
            outcome, found = await asyncio.gather(
                sending, deleted(backend, id_), return_exceptions=True
            )

            is_begun = outcome is None
            assert is_begun or isinstance(outcome, NotFoundError)
            assert found == is_begun
            header = await backend.archive.get_header(ExecutionId(id_))
            assert (header is not None) == is_begun


async def deleted(backend: Backend, id_: str) -> bool:
    """Whether the execution was there when nobody could begin one any more."""
    await asyncio.sleep(0)
    await backend.archive.delete_versions("w")
    return await backend.archive.get_header(ExecutionId(id_)) is not None


async def put(backend: Backend, hash_: str, name: str = "w") -> None:
    await backend.archive.put_definition(name, DefinitionHash(hash_), b"document")


def create(id_: str, hash_: str) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(id_),
        workflow="w" if hash_ != "h2" else "v",
        definition=DefinitionHash(hash_),
        version=1,
        created_at=1.0,
    )
