"""The workflows that are stored, by name and version."""

from collections.abc import Sequence
from typing import NamedTuple

from runnel.core.checks.wording import printable
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.workflow import Workflow
from runnel.definitions import Definitions
from runnel.errors import NotFoundError
from runnel.ports.archive import Archive, Definition


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
        """Under the version that its content has, or else the next; raises InvalidWorkflowError."""
        hash_ = self._definitions.hash_of_valid(workflow)
        version = await self._definitions.store(hash_, workflow)
        return Stored(workflow.name, version, await self.graph(hash_))


def _check_name(name: str) -> None:
    """Half a surrogate pair is in no name, and no store takes it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _no_workflow(name) from None


def _no_workflow(name: str) -> NotFoundError:
    return NotFoundError("workflow", printable(name))
