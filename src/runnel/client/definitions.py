"""The workflow definitions that a client has met: validated, hashed and stored once each."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from runnel.client.listing import all_headers, newest_headers
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.validation import build_graph, find_problems
from runnel.core.wording import did_you_mean, printable, quoted, shown
from runnel.core.workflow import Workflow, decode_workflow, encode_workflow, hash_workflow
from runnel.errors import InvalidWorkflowError, NotFoundError, WrongStateError
from runnel.ports.archive import Archive, Definition, ExecutionFilter, StateCount
from runnel.ports.clock import Clock

# For programs that make up their workflows as they go: what is forgotten is found out again.
DEFINITIONS_MAX = 1_000

# How long a version is taken as stored: another process may delete the workflow.
VERSION_KNOWN_S = 1.0

K = TypeVar("K")
V = TypeVar("V")


class _Known(NamedTuple):
    name: str
    version: int
    until: float


class Definitions:
    def __init__(self, archive: Archive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._graphs: OrderedDict[DefinitionHash, Graph] = OrderedDict()
        self._versions: OrderedDict[DefinitionHash, _Known] = OrderedDict()
        self._hashes: OrderedDict[int, tuple[Workflow, DefinitionHash]] = OrderedDict()
        # One for each that is being stored right now.
        self._storing: dict[DefinitionHash, asyncio.Event] = {}

    async def graph(self, hash_: DefinitionHash) -> Graph:
        found = self._graphs.get(hash_)
        if found is None:
            definition = await self._archive.get_definition(hash_)
            if definition is None:
                raise NotFoundError("definition", hash_)
            found = Graph(decode_workflow(definition.document))
            _keep(self._graphs, hash_, found)
        return found

    async def newest(self, name: str) -> Graph:
        """The last version that was stored under this name; raises NotFoundError."""
        for definition in await self._archive.list_versions(name, limit=1):
            return await self.graph(definition.hash)
        raise NotFoundError("workflow", printable(name))

    def hash_of_valid(self, workflow: Workflow) -> DefinitionHash:
        """Raises InvalidWorkflowError.

        Remembered by identity: hashing a large workflow for each of its executions would cost
        more than starting them.
        """
        known = self._hashes.get(id(workflow))
        if known is None or known[0] is not workflow:
            known = workflow, self._validated(workflow)
            _keep(self._hashes, id(workflow), known)
        return known[1]

    async def store(self, hash_: DefinitionHash, workflow: Workflow) -> int:
        """Its version; it is stored once, however many ask for that at the same time.

        Those who waited for one that failed, or was cancelled, try by themselves. One that another
        process has deleted is stored again VERSION_KNOWN_S later at most.
        """
        while (storing := self._storing.get(hash_)) is not None:
            await storing.wait()
        known = self._versions.get(hash_)
        now = self._clock.monotonic()
        if known is None or now >= known.until:
            storing = self._storing[hash_] = asyncio.Event()
            try:
                known = _Known(workflow.name, await self._put(workflow), now + VERSION_KNOWN_S)
                _keep(self._versions, hash_, known)
            finally:
                del self._storing[hash_]
                storing.set()
        return known.version

    async def insist(self, hash_: DefinitionHash, workflow: Workflow) -> None:
        """Stores it again if it was deleted here meanwhile: who has just used it came later."""
        if hash_ not in self._versions:
            await self.store(hash_, workflow)

    def forget(self, name: str) -> None:
        """Versions of this name are asked for again."""
        for hash_ in [each for each, known in self._versions.items() if known.name == name]:
            del self._versions[hash_]

    def _validated(self, workflow: Workflow) -> DefinitionHash:
        """Validates what does not equal a known workflow.

        Hashing first, because it takes a fifth of the time; but an equal hash is not enough,
        because NaN is encoded as null.
        """
        try:
            hash_ = hash_workflow(workflow)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            problems = find_problems(workflow) or [f"it can't be stored as JSON: {error}"]
            source = f"workflow {shown(workflow.name)}"
            raise InvalidWorkflowError(problems, source=source) from error
        known = self._graphs.get(hash_)
        if known is None or known.workflow != workflow:
            _keep(self._graphs, hash_, build_graph(workflow))
        return hash_

    async def _put(self, workflow: Workflow) -> int:
        for node in workflow.nodes:
            if node.child is not None:
                await self._put(node.child)
        return await self._archive.put_definition(
            workflow.name, hash_workflow(workflow), encode_workflow(workflow)
        )


def _keep(cache: OrderedDict[K, V], key: K, value: V) -> None:
    """The one that was added first leaves when there are too many."""
    cache[key] = value
    if len(cache) > DEFINITIONS_MAX:
        cache.popitem(last=False)


# The workflows that are stored, by name and version.

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


# The workflow that somebody names for a trigger: found, or refused with the one that was meant.

COMPARED = 1_000


async def wanted_workflow(library: Library, name: str, version: int | None) -> Workflow:
    """The newest version without one; raises NotFoundError."""
    try:
        return (await library.find(name, version)).graph.workflow
    except NotFoundError as error:
        if version is not None:
            hint = f"'runnel workflows {error.name}' shows its versions"
        else:
            known = [each.name for each in await library.list(limit=COMPARED)]
            close = did_you_mean(name, known).strip(" ()")
            hint = close or "'runnel workflows' shows those that exist"
        raise NotFoundError(error.kind, error.name, hint=hint) from error
