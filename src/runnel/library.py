"""The workflows that are stored, by name and version."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import structs

from runnel.core.checks.wording import printable, quoted
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.workflow import Workflow
from runnel.definitions import Definitions
from runnel.errors import NotFoundError, WrongStateError
from runnel.listing import all_headers, newest_headers
from runnel.ports.archive import Archive, Definition, ExecutionFilter, StateCount

UNFINISHED = tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)


class Stored(NamedTuple):
    """A version of a workflow."""

    name: str
    version: int
    graph: Graph


class Library:
    def __init__(self, archive: Archive, definitions: Definitions) -> None:
        self._archive = archive
        self._definitions = definitions

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """The newest version of each, by name; `after` is the last name of the previous page."""
        return await self._archive.list_workflows(after=after, limit=limit)

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Newest first; raises NotFoundError."""
        _check_name(name)
        found = await self._archive.list_versions(name, limit=limit)
        if not found:
            raise _no_workflow(name)
        return found

    async def find(self, name: str, version: int | None = None) -> Stored:
        """The newest version, or the one that is asked for; raises NotFoundError."""
        if version is None:
            found = (await self.versions(name, limit=1))[0]
        else:
            _check_name(name)
            known = await self._archive.find_version(name, version)
            if known is None:
                raise NotFoundError(f"version {version} of workflow", printable(name))
            found = known
        return Stored(found.name, found.version, await self.graph(found.hash))

    async def graph(self, hash_: DefinitionHash) -> Graph:
        return await self._definitions.graph(hash_)

    async def store(self, workflow: Workflow) -> Stored:
        """Under the version that its content has, or else the next; raises InvalidWorkflowError.

        Whatever was deleted is there again then.
        """
        hash_ = self._definitions.hash_of_valid(workflow)
        self._definitions.forget(workflow.name)
        version = await self._definitions.store(hash_, workflow)
        return Stored(workflow.name, version, await self.graph(hash_))

    async def delete(self, name: str) -> int:
        """How many versions; raises WrongStateError while executions of it are not final.

        None is found by its name any more: who runs it by that is refused from then on. Executions
        that have ended keep their definition, and whoever submits the same again makes the next
        version, also who does so while it is deleted. Of an execution that was begun while this
        looked for such, the version is there again, as the next.
        """
        await self.versions(name, limit=1)
        unfinished = ExecutionFilter(workflow=name, states=UNFINISHED, with_children=True)
        if await newest_headers(self._archive, structs.replace(unfinished, limit=1)):
            raise _in_use(name, (await self._archive.count_headers(unfinished)).values())
        deleted = await self._archive.delete_versions(name)
        self._definitions.forget(name)
        used = {each.definition async for each in all_headers(self._archive, unfinished)}
        for hash_ in used:
            await self._put_again(DefinitionHash(hash_))
        return deleted

    async def _put_again(self, hash_: DefinitionHash) -> None:
        definition = await self._archive.get_definition(hash_)
        if definition is not None:
            await self._archive.put_definition(definition.name, hash_, definition.document)


def _in_use(name: str, counts: Collection[StateCount]) -> WrongStateError:
    number = sum(each.number for each in counts)
    least = "at least " if any(each.is_least for each in counts) else ""
    which = "1 execution of it is" if number == 1 else f"{least}{number:,} executions of it are"
    return WrongStateError(
        f"workflow {quoted(name)} can't be deleted: {which} not final; wait for the end, or cancel"
    )


def _check_name(name: str) -> None:
    """Half a surrogate pair is in no name, and no store takes it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _no_workflow(name) from None


def _no_workflow(name: str) -> NotFoundError:
    return NotFoundError("workflow", printable(name))
