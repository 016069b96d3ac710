"""Executions that are not final, and who is to go on with them."""

from collections.abc import AsyncIterator

import msgspec

from runnel.authoring.builder import STEP_HANDLER
from runnel.authoring.tracing.function_names import IN_SESSION
from runnel.core.ids import DefinitionHash, ExecutionId, root_of
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.workflow import Workflow
from runnel.definitions import Definitions
from runnel.listing import all_headers
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header, LeaseRecord
from runnel.runtime.look import Look

PAGE = 500
UNFINISHED = tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)
OF_PROGRAM = (
    "it ran inside a program (WorkflowExecutor, or an interactive session) and can't be resumed "
    "here"
)


def is_of_program(workflow: Workflow) -> bool:
    """Whether its functions are in the memory of one process, and have no name elsewhere."""
    return any(
        node.handler == STEP_HANDLER
        or str(node.config.get("function", "")).startswith(IN_SESSION)
        or (node.child is not None and is_of_program(node.child))
        for node in workflow.nodes
    )


class Unfinished:
    """What is found out about a tree or a definition is asked for once."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._definitions = Definitions(look.backend.archive, look.clock)
        self._has_running_root: dict[ExecutionId, bool] = {}
        self._owners: dict[ExecutionId, LeaseRecord | None] = {}

    async def all(self, wanted: ExecutionFilter | None = None) -> AsyncIterator[Header]:
        """Newest first; children always, and whatever the `limit`."""
        wanted = wanted or ExecutionFilter(states=UNFINISHED)
        every = msgspec.structs.replace(wanted, with_children=True, limit=PAGE)
        async for header in all_headers(self._look.backend.archive, every):
            yield header

    async def is_part(self, header: Header) -> bool:
        """Whether it belongs to a root that is unfinished: who goes on with that, does with it."""
        root = root_of(header.execution_id)
        if root == header.execution_id:
            return False
        found = self._has_running_root.get(root)
        if found is None:
            top = await self._look.backend.archive.get_header(root)
            found = top is not None and top.state not in EXECUTION_FINAL
            self._has_running_root[root] = found
        return found

    async def owner_of(self, header: Header) -> LeaseRecord | None:
        """None when no living process has it; a tree has one owner."""
        root = root_of(header.execution_id)
        if root not in self._owners:
            self._owners[root] = await self._look.owner_of(header.execution_id)
        return self._owners[root]

    async def is_of_program(self, header: Header) -> bool:
        graph = await self._definitions.graph(DefinitionHash(header.definition))
        return is_of_program(graph.workflow)
