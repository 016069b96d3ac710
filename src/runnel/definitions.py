"""The workflow definitions that a client has met: validated, hashed and stored once each."""

import asyncio
from collections import OrderedDict
from typing import NamedTuple, TypeVar

from runnel.core.checks.wording import printable, shown
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.validation import build_graph, find_problems
from runnel.core.workflow import Workflow, decode_workflow, encode_workflow, hash_workflow
from runnel.errors import InvalidWorkflowError, NotFoundError
from runnel.ports.archive import Archive
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
