"""Finds the executions of a store that are not final."""

from collections.abc import AsyncIterator

import msgspec

from runnel.cli.session.open_client import ClientSession
from runnel.client.listing import iter_executions
from runnel.core.ids import DefinitionHash, ExecutionId, get_root_id
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.workflow import Workflow
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import ExecutionSummary

PAGE_SIZE = 500
UNFINISHED_STATES = tuple(state for state in ExecutionState if state not in FINAL_EXECUTION_STATES)
PROGRAM_ONLY_MESSAGE = (
    "it ran inside a program (WorkflowExecutor, or an interactive session) and can't be resumed "
    "here"
)


def is_bound_to_program(workflow: Workflow) -> bool:
    """Whether a workflow has functions that exist only in the memory of one process."""
    from runnel.authoring.builder import STEP_HANDLER
    from runnel.authoring.functions import MAIN_MODULE_PREFIX

    return any(
        node.handler == STEP_HANDLER
        or str(node.config.get("function", "")).startswith(MAIN_MODULE_PREFIX)
        or (node.child is not None and is_bound_to_program(node.child))
        for node in workflow.nodes
    )


class UnfinishedExecutions:
    """Finds unfinished executions; asks once for each tree and each definition."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._is_bound: dict[str, bool] = {}
        self._has_running_root: dict[ExecutionId, bool] = {}
        self._owners: dict[ExecutionId, str | None] = {}

    async def iterate(
        self, execution_filter: ExecutionFilter | None = None
    ) -> AsyncIterator[ExecutionSummary]:
        """Yields executions, newest first, with children; ignores the `limit` of the filter."""
        execution_filter = execution_filter or ExecutionFilter(states=UNFINISHED_STATES)
        every = msgspec.structs.replace(execution_filter, with_children=True, limit=PAGE_SIZE)
        async for header in iter_executions(self._session.client, every):
            yield header

    async def has_unfinished_root(self, header: ExecutionSummary) -> bool:
        """Whether its root is unfinished: the process that resumes the root resumes the child."""
        root = get_root_id(header.execution_id)
        if root == header.execution_id:
            return False
        is_unfinished = self._has_running_root.get(root)
        if is_unfinished is None:
            top = (await self._session.client.summaries([root])).get(root)
            is_unfinished = top is not None and top.status not in FINAL_EXECUTION_STATES
            self._has_running_root[root] = is_unfinished
        return is_unfinished

    async def find_owner(self, header: ExecutionSummary) -> str | None:
        """Returns the name of the owner of its tree; None if no living process has it."""
        root = get_root_id(header.execution_id)
        if root not in self._owners:
            self._owners[root] = await self._session.find_owner(header.execution_id)
        return self._owners[root]

    async def is_bound_to_program(self, header: ExecutionSummary) -> bool:
        known = self._is_bound.get(header.workflow_definition_id)
        if known is None:
            library = self._session.client.library
            graph = await library.load_graph(DefinitionHash(header.workflow_definition_id))
            known = self._is_bound[header.workflow_definition_id] = is_bound_to_program(
                graph.workflow
            )
        return known
