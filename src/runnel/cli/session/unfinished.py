"""Finds unfinished executions, and the reasons why a process can't resume them."""

from collections.abc import AsyncIterator

import msgspec

from runnel.cli.session.open_client import ClientSession
from runnel.client.execution_lists import iter_executions
from runnel.core.ids import DefinitionHash, ExecutionId, get_root_id
from runnel.core.states import FINAL_EXECUTION_STATES, UNFINISHED_STATES
from runnel.core.workflow import Workflow
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import ExecutionSummary

PAGE_SIZE = 500
PROGRAM_ONLY_MESSAGE = (
    "the execution ran inside a program (WorkflowExecutor, or an interactive session) and can't be "
    "resumed here"
)


def is_bound_to_program(workflow: Workflow) -> bool:
    """Returns True if a workflow has functions that exist only in the memory of one process."""
    from runnel.authoring.builder import STEP_HANDLER
    from runnel.authoring.functions import MAIN_MODULE_PREFIX

    return any(
        node.handler == STEP_HANDLER
        or str(node.config.get("function", "")).startswith(MAIN_MODULE_PREFIX)
        or (node.child is not None and is_bound_to_program(node.child))
        for node in workflow.nodes
    )


class UnfinishedExecutions:
    """Finds unfinished executions; caches the owner of each tree and facts about each workflow."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._is_bound: dict[str, bool] = {}
        self._has_running_root: dict[ExecutionId, bool] = {}
        self._owners: dict[ExecutionId, str | None] = {}

    async def iterate(
        self, execution_filter: ExecutionFilter | None = None
    ) -> AsyncIterator[ExecutionSummary]:
        """Yields matching executions and children, newest first; ignores the filter's `limit`."""
        execution_filter = execution_filter or ExecutionFilter(states=UNFINISHED_STATES)
        every = msgspec.structs.replace(execution_filter, with_children=True, limit=PAGE_SIZE)
        async for summary in iter_executions(self._session.client, every):
            yield summary

    async def has_unfinished_root(self, summary: ExecutionSummary) -> bool:
        """Returns True if the execution is a child whose root is unfinished.

        A process that resumes the root resumes the child as well.
        """
        root = get_root_id(summary.execution_id)
        if root == summary.execution_id:
            return False
        is_unfinished = self._has_running_root.get(root)
        if is_unfinished is None:
            root_summary = (await self._session.client.summaries([root])).get(root)
            is_unfinished = (
                root_summary is not None and root_summary.status not in FINAL_EXECUTION_STATES
            )
            self._has_running_root[root] = is_unfinished
        return is_unfinished

    async def find_owner(self, summary: ExecutionSummary) -> str | None:
        """Returns the name of the process that runs the execution; None if there is none."""
        root = get_root_id(summary.execution_id)
        if root not in self._owners:
            self._owners[root] = await self._session.find_owner(summary.execution_id)
        return self._owners[root]

    async def is_bound_to_program(self, summary: ExecutionSummary) -> bool:
        known = self._is_bound.get(summary.workflow_definition_id)
        if known is None:
            library = self._session.client.library
            graph = await library.load_graph(DefinitionHash(summary.workflow_definition_id))
            known = self._is_bound[summary.workflow_definition_id] = is_bound_to_program(
                graph.workflow
            )
        return known
