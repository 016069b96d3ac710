"""Executions that are not final: of a whole store, and the children of those that are followed."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from runnel.authoring.builder import STEP_HANDLER
from runnel.authoring.functions import MAIN_MODULE_PREFIX
from runnel.cli.session.open_client import ClientSession
from runnel.client.listing import iter_executions
from runnel.core.events import ExecutionCreated, ExecutionFinished
from runnel.core.ids import DefinitionHash, ExecutionId, get_root_id
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.workflow import Workflow
from runnel.notify.event_bus import CommittedEvents
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import ExecutionHeader

PAGE_SIZE = 500
UNFINISHED_STATES = tuple(state for state in ExecutionState if state not in FINAL_EXECUTION_STATES)
PROGRAM_ONLY_MESSAGE = (
    "it ran inside a program (WorkflowExecutor, or an interactive session) and can't be resumed "
    "here"
)


def is_bound_to_program(workflow: Workflow) -> bool:
    """Whether its functions are in the memory of one process, and have no name elsewhere."""
    return any(
        node.handler == STEP_HANDLER
        or str(node.config.get("function", "")).startswith(MAIN_MODULE_PREFIX)
        or (node.child is not None and is_bound_to_program(node.child))
        for node in workflow.nodes
    )


class UnfinishedExecutions:
    """What is found out about a tree or a definition is asked for once."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._is_bound: dict[str, bool] = {}
        self._has_running_root: dict[ExecutionId, bool] = {}
        self._owners: dict[ExecutionId, str | None] = {}

    async def iterate(
        self, execution_filter: ExecutionFilter | None = None
    ) -> AsyncIterator[ExecutionHeader]:
        """Newest first; children always, and whatever the `limit`."""
        execution_filter = execution_filter or ExecutionFilter(states=UNFINISHED_STATES)
        every = msgspec.structs.replace(execution_filter, with_children=True, limit=PAGE_SIZE)
        async for header in iter_executions(self._session.client, every):
            yield header

    async def has_unfinished_root(self, header: ExecutionHeader) -> bool:
        """Whether it belongs to a root that is unfinished: who goes on with that, does with it."""
        root = get_root_id(header.execution_id)
        if root == header.execution_id:
            return False
        found = self._has_running_root.get(root)
        if found is None:
            top = (await self._session.client.summaries([root])).get(root)
            found = top is not None and top.state not in FINAL_EXECUTION_STATES
            self._has_running_root[root] = found
        return found

    async def find_owner(self, header: ExecutionHeader) -> str | None:
        """Its name; None when no living process has it. A tree has one owner."""
        root = get_root_id(header.execution_id)
        if root not in self._owners:
            self._owners[root] = await self._session.find_owner(header.execution_id)
        return self._owners[root]

    async def is_bound_to_program(self, header: ExecutionHeader) -> bool:
        known = self._is_bound.get(header.definition)
        if known is None:
            library = self._session.client.library
            graph = await library.load_graph(DefinitionHash(header.definition))
            known = self._is_bound[header.definition] = is_bound_to_program(graph.workflow)
        return known


class UnfinishedChildren:
    """Knows the children that the engine of this process reports, and those of `add`."""

    def __init__(self) -> None:
        self._unfinished: dict[ExecutionId, dict[ExecutionId, None]] = {}

    def add(self, child: ExecutionId) -> None:
        self._unfinished.setdefault(get_root_id(child), {})[child] = None

    def remove(self, child: ExecutionId) -> None:
        root = get_root_id(child)
        children = self._unfinished.get(root, {})
        children.pop(child, None)
        if not children:
            self._unfinished.pop(root, None)

    def update(self, notification: CommittedEvents) -> None:
        execution_id = ExecutionId(notification.execution_id)
        if get_root_id(execution_id) == execution_id:
            return
        for event in notification.events:
            if isinstance(event, ExecutionCreated):
                self.add(execution_id)
            elif isinstance(event, ExecutionFinished):
                self.remove(execution_id)

    def has_any(self, execution_id: ExecutionId) -> bool:
        """Whether the tree of this execution has unfinished children."""
        return get_root_id(execution_id) in self._unfinished

    def list_children(self, execution_id: ExecutionId) -> Sequence[ExecutionId]:
        """List the unfinished children of the execution's tree, oldest first."""
        return list(self._unfinished.get(get_root_id(execution_id), ()))
