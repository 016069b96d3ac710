"""The calls of `runnel.Engine` that read executions and send them commands."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from runnel.app.run_arguments import RunSource, copy_own_labels, resolve_source
from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.documents import load_file
from runnel.client.execution_lists import search_executions
from runnel.client.protocol import (
    ITEMS_PAGE_SIZE,
    Bulk,
    DeadLetters,
    Values,
    Workflows,
)
from runnel.client.store_client import StoreClient
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.client.reruns import RerunSpec
    from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent, StateCount
    from runnel.views.node import NodeDetail
    from runnel.views.page import Page
    from runnel.views.workflow import StoredWorkflow

PlainWorkflow: TypeAlias = Workflow | Graph | WorkflowDAG | Path
"""A workflow without a signature; a Path names a workflow file."""
WorkflowSource: TypeAlias = PlainWorkflow | TracedWorkflow[..., Any]


class EngineClient(ABC):
    """The methods of an engine that its `StoreClient` carries out.

    `_get_client` raises if the engine is not open or has ended.
    """

    @abstractmethod
    def _get_client(self) -> StoreClient: ...

    @abstractmethod
    def _get_settings(self) -> Settings: ...

    def _resolve(self, source: WorkflowSource) -> RunSource:
        """Returns the workflow with its options; raises InputError for any other value."""
        settings = self._get_settings()
        if isinstance(source, Graph):
            source = source.workflow
        elif isinstance(source, Path):
            source = load_file(source, retry=settings.retry)
        if not isinstance(source, Workflow | TracedWorkflow | WorkflowDAG):
            raise InputError(
                "expected a @workflow, the Path of a workflow file, a WorkflowDAG or the result of "
                f"runnel.load_file, got {describe_value(source)}"
            )
        return resolve_source(source, settings)

    async def submit_many(
        self,
        workflow: WorkflowSource,
        inputs: Sequence[Json],
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_keys: Sequence[str] | None = None,
    ) -> list[ExecutionId]:
        """Starts an execution for each of at most 1,000 inputs; returns the ids in their order.

        The input of a decorated workflow is an object of its arguments. Raises InvalidInputError
        with the problems of all inputs, before anything is stored. A repeated call with the same
        `idempotency_keys`, one for each input, starts nothing twice.
        """
        client = self._get_client()
        source = self._resolve(workflow)
        return await client.submit_many(
            source.workflow,
            inputs,
            labels={**source.labels, **copy_own_labels(labels or {})},
            priority=source.priority if priority is None else priority,
            idempotency_keys=idempotency_keys,
        )

    async def hold(
        self,
        workflow: WorkflowSource,
        input: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores a held execution, which starts when `trigger` is called.

        `trigger` checks the input, and may replace it.
        """
        client = self._get_client()
        source = self._resolve(workflow)
        return await client.hold(
            source.workflow,
            input,
            labels={**source.labels, **copy_own_labels(labels or {})},
            priority=source.priority if priority is None else priority,
            idempotency_key=source.key if idempotency_key is None else idempotency_key,
        )

    async def trigger(
        self, execution_id: str, input: Json = None, *, idempotency_key: str | None = None
    ) -> None:
        """Starts a held execution; raises WrongStateError if the execution was already started."""
        await self._get_client().trigger(
            ExecutionId(execution_id), input, idempotency_key=idempotency_key
        )

    async def rerun(
        self,
        execution_id: str,
        options: "RerunSpec | None" = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Starts a new execution that reuses the completed nodes of a final execution.

        The new execution has the same input, unless `input` is given.
        """
        return await self._get_client().rerun(
            ExecutionId(execution_id), options, input=input, idempotency_key=idempotency_key
        )

    async def cancel(self, execution_id: str, *, reason: str = "", is_forced: bool = False) -> None:
        """Cancels an execution. Its clean-up nodes still run, unless `is_forced` is true."""
        await self._get_client().cancel(
            ExecutionId(execution_id), reason=reason, is_forced=is_forced
        )

    async def signal(
        self,
        execution_id: str,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Sends a signal to the node that waits for it; a repeated `signal_id` has no effect."""
        await self._get_client().signal(
            ExecutionId(execution_id), name, payload, signal_id=signal_id
        )

    async def get(self, execution_id: str) -> "ExecutionView":
        """Returns an execution with its nodes and their outputs; raises NotFoundError."""
        return await self._get_client().get(ExecutionId(execution_id))

    async def node(
        self,
        execution_id: str,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> "NodeDetail":
        """Returns a node, or one item of a map, with its attempts, config, inputs, output and logs.

        A map also has one page of its items: those after the item number `items_after`.
        """
        return await self._get_client().node(
            ExecutionId(execution_id),
            node_id,
            item=item,
            items_after=items_after,
            items_limit=items_limit,
        )

    async def history(self, execution_id: str) -> "list[HistoryEvent]":
        """Returns all events of an execution, in order; raises NotFoundError."""
        return await self._get_client().history(ExecutionId(execution_id))

    async def list_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> "Page[ExecutionSummary]":
        """Returns one page of executions, newest first."""
        return await self._get_client().list_executions(criteria)

    def executions(
        self,
        *,
        states: Sequence[ExecutionState | str] = (),
        workflow: str | None = None,
        labels: Mapping[str, str] | None = None,
        text: str = "",
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        with_children: bool = False,
    ) -> "AsyncIterator[ExecutionSummary]":
        """Yields all executions that match every given filter, newest first.

        `text` is a part of the execution id, the workflow's name, a label's value or the error.
        """
        return search_executions(
            self._get_client(),
            states=states,
            workflow=workflow,
            labels=labels,
            text=text,
            created_from=created_from,
            created_before=created_before,
            with_children=with_children,
        )

    async def count_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> "Mapping[ExecutionState, StateCount]":
        """Counts the executions in each state; stops counting a state at a maximum."""
        return await self._get_client().count_executions(criteria)

    async def find(self, text: str) -> ExecutionId:
        """Returns the execution id that equals the text, or the only id that begins with it."""
        return await self._get_client().find(text)

    async def summaries(
        self, ids: Sequence[ExecutionId]
    ) -> "Mapping[ExecutionId, ExecutionSummary]":
        """Returns the summaries of the executions that exist, by id."""
        return await self._get_client().summaries(ids)

    async def store(self, workflow: WorkflowSource) -> "StoredWorkflow":
        """Stores a workflow without running it, for example for a schedule.

        Content that is already stored keeps its version.
        """
        return await self._get_client().library.store(self._resolve(workflow).workflow)

    @property
    def library(self) -> Workflows:
        """The stored workflows: `list`, `versions`, `get`, `activate`, `delete` and others."""
        return self._get_client().library

    @property
    def dead_letters(self) -> DeadLetters:
        """Tasks without further attempts: `list`, `get`, `retry`, `purge` and others."""
        return self._get_client().dead_letters

    @property
    def many(self) -> Bulk:
        """Bulk commands: `cancel` and `rerun` for all executions that match a filter."""
        return self._get_client().many

    @property
    def values(self) -> Values:
        """Whole inputs and outputs, also those that views show as previews."""
        return self._get_client().values
