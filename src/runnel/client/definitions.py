"""Validates, hashes, caches, stores, lists and deletes workflow definitions."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from runnel.authoring.payloads import check_text
from runnel.client.execution_lists import iter_headers
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash
from runnel.core.message_text import describe_value, escape_unprintable, quote_name, suggest_name
from runnel.core.states import UNFINISHED_STATES
from runnel.core.validation import build_graph, find_problems
from runnel.core.workflow import (
    Workflow,
    decode_workflow,
    encode_workflow,
    hash_document,
    hash_workflow,
)
from runnel.engine.graph_cache import GraphCache
from runnel.errors import (
    ConflictError,
    InvalidWorkflowError,
    NotFoundError,
    PayloadError,
    WrongStateError,
)
from runnel.ports.archive import Archive, Definition, ExecutionCount, ExecutionFilter
from runnel.ports.clock import Clock
from runnel.views import Timestamp

if TYPE_CHECKING:
    from runnel.ports import Backend
    from runnel.views.workflow import Activation, ActiveVersion, StoredWorkflow, WorkflowDocument

# The maximum number of cached definitions, which only programs that generate workflows reach. A
# definition that the cache has evicted is loaded or validated again when it is needed.
DEFINITIONS_MAX = 1_000

# For this time, the cache assumes that a stored version still exists. After this time, it queries
# the archive again, because another process may have deleted the workflow.
VERSION_KNOWN_S = 1.0

K = TypeVar("K")
V = TypeVar("V")


class _KnownVersion(NamedTuple):
    name: str
    version: int
    until: float


class DefinitionCache:
    """A cache of workflow definitions, which validates, hashes and stores each definition once."""

    def __init__(
        self,
        archive: Archive,
        clock: Clock,
        graphs: GraphCache | None = None,
        *,
        mocks_services: bool = False,
    ) -> None:
        self._archive = archive
        self._mocks_services = mocks_services
        self._clock = clock
        self._graphs = graphs or GraphCache(archive)
        self._versions: OrderedDict[DefinitionHash, _KnownVersion] = OrderedDict()
        self._hashes: OrderedDict[int, tuple[Workflow, DefinitionHash]] = OrderedDict()
        # One event for each definition that a call is storing right now.
        self._storing: dict[DefinitionHash, asyncio.Event] = {}

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        graph = await self._graphs.find(hash_)
        if graph is None:
            raise NotFoundError("definition", hash_)
        return graph

    async def load_newest_graph(self, name: str) -> Graph:
        """Returns the graph of the newest version of a workflow; raises NotFoundError."""
        for definition in await self._archive.list_versions(name, limit=1):
            return await self.load_graph(definition.hash)
        raise NotFoundError("workflow", escape_unprintable(name))

    def add(self, graph: Graph) -> Workflow:
        """Caches a graph that `compile_canonical` has compiled, and returns its workflow."""
        self._graphs.add(graph.hash, graph)
        _remember(self._hashes, id(graph.workflow), (graph.workflow, graph.hash))
        return graph.workflow

    def validate_and_hash(self, workflow: Workflow) -> DefinitionHash:
        """Returns the hash of a valid workflow; raises InvalidWorkflowError.

        The hash is cached under the identity of the workflow object. To hash a large workflow for
        each execution would cost more than to start the execution.
        """
        known = self._hashes.get(id(workflow))
        if known is None or known[0] is not workflow:
            known = workflow, self._validate(workflow)
            _remember(self._hashes, id(workflow), known)
        return known[1]

    async def store(self, hash_: DefinitionHash, workflow: Workflow) -> int:
        """Stores a definition and returns its version.

        One of several concurrent calls stores the definition, and the other calls wait. If the
        storing call fails or is cancelled, the waiting calls try again. If another process deletes
        the definition, calls after VERSION_KNOWN_S store it again.
        """
        while (storing := self._storing.get(hash_)) is not None:
            await storing.wait()
        known = self._versions.get(hash_)
        now = self._clock.monotonic()
        if known is None or now >= known.until:
            storing = self._storing[hash_] = asyncio.Event()
            try:
                known = _KnownVersion(
                    workflow.name, await self._store_with_children(workflow), now + VERSION_KNOWN_S
                )
                _remember(self._versions, hash_, known)
            finally:
                del self._storing[hash_]
                storing.set()
        return known.version

    async def store_again_if_deleted(self, hash_: DefinitionHash, workflow: Workflow) -> None:
        """Stores a definition again if this process deleted it during a submit."""
        if hash_ not in self._versions:
            await self.store(hash_, workflow)

    def forget_versions(self, name: str) -> None:
        """Deletes a workflow's cached versions, so that the next `store` queries the archive."""
        for hash_, known in list(self._versions.items()):
            if known.name == name:
                del self._versions[hash_]

    def _validate(self, workflow: Workflow) -> DefinitionHash:
        """Validates a workflow unless an equal one is cached; returns its hash.

        Hashing comes first, because it takes a fifth of the time of validation. A cached workflow
        with the same hash is also compared, because the encoding that is hashed has null for NaN.
        """
        try:
            hash_ = hash_workflow(workflow)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            problems = find_problems(workflow, mocks_services=self._mocks_services) or [
                f"the workflow can't be stored as JSON: {error}"
            ]
            source = f"workflow {describe_value(workflow.name)}"
            raise InvalidWorkflowError(problems, source=source) from error
        known = self._graphs.get_cached(hash_)
        if known is None or known.workflow != workflow:
            self._graphs.add(hash_, build_graph(workflow, mocks_services=self._mocks_services))
        return hash_

    async def _store_with_children(self, workflow: Workflow) -> int:
        for node in workflow.nodes:
            if node.child is not None:
                await self._store_with_children(node.child)
        document = encode_workflow(workflow)
        return await self._archive.put_definition(workflow.name, hash_document(document), document)


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    """Adds an entry to a cache, and evicts the oldest entry if the cache is full."""
    cache[key] = value
    if len(cache) > DEFINITIONS_MAX:
        cache.popitem(last=False)


# Stored workflows, by name and version.


class StoredVersion(NamedTuple):
    """A version of a workflow with its compiled graph."""

    name: str
    version: int
    graph: Graph


# The activations of a workflow are one record. The newest activation comes first.
ACTIVATIONS_KIND = "activations"
ACTIVATIONS_MAX = 20
AUTHOR_CHARS_MAX = 200
CONFLICTS_MAX = 10


def _encode_activations(activations: Sequence[Activation]) -> bytes:
    return msgspec.json.encode(
        [(item.version, item.activated_by, float(item.activated_at)) for item in activations]
    )


def _decode_activations(data: bytes) -> Sequence[Activation]:
    from runnel.views.workflow import Activation

    rows = msgspec.json.decode(data, type=list[tuple[int | None, str, float]])
    return [
        Activation(version=version, activated_by=author, activated_at=Timestamp(at))
        for version, author, at in rows
    ]


class WorkflowLibrary:
    """The client's `Workflows` over a store."""

    def __init__(self, backend: Backend, definitions: DefinitionCache, clock: Clock) -> None:
        self._archive = backend.archive
        self._records = backend.records
        self._definitions = definitions
        self._clock = clock

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the newest version of each workflow, by name.

        `after` is the last name of the previous page.
        """
        definitions = await self._archive.list_workflows(after=after, limit=limit)
        active = await self.list_active_versions(after=after, limit=limit)
        return [
            structs.replace(
                build_stored_workflow(definition), active_version=active.get(definition.name)
            )
            for definition in definitions
        ]

    async def list_active_versions(self, *, after: str, limit: int) -> dict[str, int]:
        """Returns the activated versions of the workflows on one page of `list`, by name."""
        records = await self._records.list(ACTIVATIONS_KIND, after=after, limit=limit)
        newest = {record.key: _decode_activations(record.data)[0] for record in records}
        return {
            name: activation.version
            for name, activation in newest.items()
            if activation.version is not None
        }

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the versions of a workflow, newest first; raises NotFoundError."""
        definitions = await self.list_definitions(name, limit=limit)
        active = await self.find_active_version(name)
        return [
            structs.replace(build_stored_workflow(definition), active_version=active)
            for definition in definitions
        ]

    async def activate(self, name: str, version: int | None, *, author: str) -> ActiveVersion:
        """Sets the version that runs by name; None means the newest version, also in future.

        Raises NotFoundError for an unknown version.
        """
        from runnel.views.workflow import Activation, ActiveVersion

        check_text(author, "author", chars_max=AUTHOR_CHARS_MAX)
        if not author.isprintable():
            raise PayloadError(f"author: expected a printable text, got {describe_value(author)}")
        if version is None:
            running = (await self.list_definitions(name, limit=1))[0].version
        else:
            running = (await self._find_definition(name, version)).version
        now = Timestamp(self._clock.now())
        added = Activation(version=version, activated_by=author, activated_at=now)
        for _ in range(CONFLICTS_MAX):
            record = await self._records.get(ACTIVATIONS_KIND, name)
            former = [] if record is None else _decode_activations(record.data)
            activations = [added, *former][:ACTIVATIONS_MAX]
            try:
                await self._records.put(
                    ACTIVATIONS_KIND,
                    name,
                    _encode_activations(activations),
                    revision=0 if record is None else record.revision,
                )
            except ConflictError:  # another caller activated a version at the same time
                continue
            return ActiveVersion(name=name, version=running, activations=activations)
        raise WrongStateError(
            f"workflow {quote_name(name)}: other callers activate versions at the same time; try "
            "again"
        )

    async def active(self, name: str) -> ActiveVersion:
        """Returns the version that runs by name, and the last activations; raises NotFoundError."""
        from runnel.views.workflow import ActiveVersion

        definition = await self._find_definition(name, None)
        record = await self._records.get(ACTIVATIONS_KIND, name)
        activations = [] if record is None else _decode_activations(record.data)
        return ActiveVersion(name=name, version=definition.version, activations=activations)

    async def find_active_version(self, name: str) -> int | None:
        """Returns the activated version; None if the newest version runs."""
        record = await self._records.get(ACTIVATIONS_KIND, name)
        return None if record is None else _decode_activations(record.data)[0].version

    async def find(self, name: str, version: int | None = None) -> StoredVersion:
        """Returns a version of a workflow with its graph.

        The default is the active version, or else the newest. Raises NotFoundError.
        """
        definition = await self._find_definition(name, version)
        graph = await self.load_graph(definition.hash)
        return StoredVersion(definition.name, definition.version, graph)

    async def get(self, name: str, version: int | None = None) -> WorkflowDocument:
        """Returns a version of a workflow, by default the active one, or else the newest.

        Raises NotFoundError.
        """
        view = build_workflow_view(await self._find_definition(name, version))
        return structs.replace(view, active_version=await self.find_active_version(name))

    async def _find_definition(self, name: str, version: int | None) -> Definition:
        _check_name(name)
        if version is None:
            active = await self.find_active_version(name) if name else None
            definition = None if active is None else await self._archive.find_version(name, active)
            return definition or (await self.list_definitions(name, limit=1))[0]
        definition = await self._archive.find_version(name, version)
        if definition is None:
            raise NotFoundError(f"version {version} of workflow", escape_unprintable(name))
        return definition

    async def list_definitions(self, name: str, *, limit: int) -> Sequence[Definition]:
        """Lists the stored versions of a workflow, newest first; raises NotFoundError."""
        _check_name(name)
        definitions = await self._archive.list_versions(name, limit=limit)
        if not definitions:
            raise _workflow_not_found_error(name)
        return definitions

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        return await self._definitions.load_graph(hash_)

    async def store(self, workflow: Workflow) -> StoredWorkflow:
        """Stores a workflow as a new version, unless a version with the same content is stored.

        If the workflow was deleted, the call restores it. Raises InvalidWorkflowError.
        """
        from runnel.views.workflow import StoredWorkflow

        hash_ = self._definitions.validate_and_hash(workflow)
        self._definitions.forget_versions(workflow.name)
        version = await self._definitions.store(hash_, workflow)
        return StoredWorkflow(
            name=workflow.name,
            version=version,
            workflow_definition_id=hash_,
            nodes=len(workflow.nodes),
            active_version=await self.find_active_version(workflow.name),
        )

    async def delete(self, name: str) -> int:
        """Deletes all versions of a workflow, and returns the number of versions.

        Raises WrongStateError while an execution of the workflow is not final. After the deletion,
        the workflow can't be run by name. Final executions keep their definition.

        A submit of the same content, during or after the deletion, stores the content as the next
        version. If an execution was submitted after the check for running executions, the deletion
        itself stores its definition again.
        """
        await self.list_definitions(name, limit=1)
        unfinished = ExecutionFilter(workflow=name, states=UNFINISHED_STATES, with_children=True)
        async for _ in iter_headers(self._archive, unfinished):
            raise _workflow_in_use_error(
                name, (await self._archive.count_headers(unfinished)).values()
            )
        deleted = await self._archive.delete_versions(name)
        await self._records.delete(ACTIVATIONS_KIND, name)
        self._definitions.forget_versions(name)
        used = {header.definition async for header in iter_headers(self._archive, unfinished)}
        for hash_ in used:
            await self._restore_definition(DefinitionHash(hash_))
        return deleted

    async def _restore_definition(self, hash_: DefinitionHash) -> None:
        definition = await self._archive.get_definition(hash_)
        if definition is not None:
            await self._archive.put_definition(definition.name, hash_, definition.document)


def build_workflow_view(definition: Definition) -> WorkflowDocument:
    from runnel.authoring.documents.export import to_document
    from runnel.views.workflow import WorkflowDocument

    document = to_document(decode_workflow(definition.document))
    return WorkflowDocument(**structs.asdict(build_stored_workflow(definition)), document=document)


def build_stored_workflow(definition: Definition) -> StoredWorkflow:
    from runnel.views.workflow import StoredWorkflow

    return StoredWorkflow(
        name=definition.name,
        version=definition.version,
        workflow_definition_id=definition.hash,
        nodes=len(decode_workflow(definition.document).nodes),
    )


def _workflow_in_use_error(name: str, counts: Collection[ExecutionCount]) -> WrongStateError:
    number = sum(count.number for count in counts)
    least = "at least " if any(count.is_least for count in counts) else ""
    which = "1 execution is" if number == 1 else f"{least}{number:,} executions are"
    return WrongStateError(
        f"workflow {quote_name(name)} can't be deleted: {which} not final; wait for the end, or "
        "cancel"
    )


def _check_name(name: str) -> None:
    """Raises NotFoundError if the name has half a surrogate pair, which no stored name contains."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise _workflow_not_found_error(name) from None


def _workflow_not_found_error(name: str) -> NotFoundError:
    return NotFoundError("workflow", escape_unprintable(name))


# Lookup of the workflow that a trigger runs. The error for an unknown name suggests a similar known
# name.

SUGGESTION_CANDIDATES_MAX = 1_000


async def find_workflow_or_suggest(
    library: WorkflowLibrary, name: str, version: int | None
) -> Workflow:
    """Returns a version of a workflow, by default the active one, or else the newest.

    Raises NotFoundError with a hint that suggests a similar name.
    """
    try:
        return (await library.find(name, version)).graph.workflow
    except NotFoundError as error:
        if version is not None:
            hint = f"'runnel workflows {error.name}' shows its versions"
        else:
            stored = await library.list(limit=SUGGESTION_CANDIDATES_MAX)
            close = suggest_name(name, [workflow.name for workflow in stored]).strip(" ()")
            hint = close or "'runnel workflows' lists the stored workflows"
        raise NotFoundError(error.kind, error.name, hint=hint) from error
