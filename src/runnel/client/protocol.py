"""The client that commands and programs use: over a store, or over HTTP to a server.

`StoreClient` and `HttpClient` implement `Client`. The groups `Operations`, `Schedules`, `Webhooks`
and `Tokens` are opened on their own: over a store they are built by packages above this one, or
need less than a whole store. `HttpClient` has them all as attributes.

The annotations are not evaluated: a command does not load the views that it does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from runnel.ports.archive import ALL_EXECUTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from runnel.client.dead_letters import LettersOf
    from runnel.client.reruns import RerunSpec
    from runnel.core.graph import Graph
    from runnel.core.ids import DefinitionHash, ExecutionId
    from runnel.core.states import ExecutionState
    from runnel.core.values import Json
    from runnel.core.workflow import Workflow
    from runnel.ports.archive import ExecutionFilter
    from runnel.views.dead_letter import (
        BulkRetryResult,
        DeadLetterDetail,
        DeadLetterView,
        RetriedLetters,
    )
    from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent, StateCount
    from runnel.views.node import NodeDetail
    from runnel.views.operations import ConcurrencyKeyView, PartitionView, QueueView, WorkerView
    from runnel.views.page import BulkStep, Page
    from runnel.views.token import NewTokenView, Scope, TokenView
    from runnel.views.trigger import Schedule, ScheduleView, Webhook, WebhookView
    from runnel.views.workflow import StoredWorkflow, WorkflowDocument

# Items of a map that one answer about a node has, unless the caller asks for another number.
ITEMS_PAGE_SIZE = 50


class Workflows(Protocol):
    """The workflows that are stored, by name and version."""

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[StoredWorkflow]:
        """The newest version of each, by name; `after` is the last name of the previous page."""

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[StoredWorkflow]:
        """Newest first; raises NotFoundError."""

    async def get(self, name: str, version: int | None = None) -> WorkflowDocument:
        """By default the newest version; raises NotFoundError."""

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        """The definition that an execution runs; raises NotFoundError."""

    async def store(self, workflow: Workflow) -> StoredWorkflow:
        """Under the version that its content has, or else the next; raises InvalidWorkflowError."""

    async def delete(self, name: str) -> int:
        """How many versions; raises WrongStateError while executions of it are not final."""


class DeadLetters(Protocol):
    """Tasks that need a person."""

    def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[DeadLetterView]:
        """Newest first, page by page; `execution` is the beginning of an id."""

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int: ...

    async def get(self, name: str) -> DeadLetterDetail:
        """By its name, in which the first characters of the execution do."""

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> RetriedLetters:
        """Runs again what failed in its execution, with other configs of its nodes if given.

        Raises WrongStateError while that execution is not final.
        """

    async def retry_many(self, selection: LettersOf, *, limit: int = 100) -> BulkRetryResult:
        """Those of `limit` executions at most, the oldest first."""

    async def purge(self, name: str) -> None:
        """Removes it for good; its execution stays as it is."""

    async def purge_many(self, selection: LettersOf) -> int:
        """How many were removed."""


class Bulk(Protocol):
    """What is done to all executions that a filter finds, step by step."""

    def cancel(
        self, criteria: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Ends those that are not final, from the newest on, 500 in each step."""

    def rerun(
        self, criteria: ExecutionFilter, options: RerunSpec | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns those that have failed, or are in the states of the filter, 100 in each step.

        Each once for each `key`, however often this is called.
        """


class Client(Protocol):
    """Executions of a store or of a server.

    Both implementations raise the same errors of `runnel.errors`; over HTTP besides NoServerError,
    NotAuthenticatedError, MissingScopeError, TooManyRequestsError.
    """

    @property
    def library(self) -> Workflows: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    @property
    def many(self) -> Bulk: ...

    async def submit(
        self,
        workflow: Workflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores the workflow and begins an execution of it, without waiting for its end."""

    async def hold(
        self, workflow: Workflow, /, *, idempotency_key: str | None = None
    ) -> ExecutionId:
        """Stores an execution that starts when it is triggered."""

    async def trigger(
        self,
        execution_id: ExecutionId,
        input: Json = None,
        /,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        """Starts a held execution; raises WrongStateError when it was started before."""

    async def rerun(
        self,
        execution_id: ExecutionId,
        options: RerunSpec | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Begins a new execution that takes over what a finished one had completed."""

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        """Clean-up nodes still run, unless it `is_forced`."""

    async def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Tells it what one of its nodes waits for; the same `signal_id` is one signal."""

    async def wait(
        self, execution_id: ExecutionId, *, timeout_s: float | None = None
    ) -> ExecutionView:
        """The execution once it is final; raises TimeoutError when that takes longer."""

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        """With its nodes and their outputs."""

    async def node(
        self,
        execution_id: ExecutionId,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> NodeDetail:
        """One node, or an item of a map; items come in pages, after `items_after`."""

    async def history(self, execution_id: ExecutionId) -> list[HistoryEvent]:
        """Everything that has happened in it, in order; raises NotFoundError."""

    def follow(self, execution_id: ExecutionId, *, after: int = 0) -> AsyncIterator[HistoryEvent]:
        """Yields the events after the first `after` as they happen, until the execution is final.

        Raises NotFoundError. An execution that could not be created ends without an event.
        """

    async def list_executions(self, criteria: ExecutionFilter) -> Page[ExecutionSummary]:
        """One page, newest first; raises InputError."""

    async def count_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        """How many there are in each state, or how many at least."""

    async def find(self, text: str) -> ExecutionId:
        """The execution that this text names: its id, or the beginning of it if that is unique.

        Raises NotFoundError.
        """

    async def summaries(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, ExecutionSummary]:
        """Of the ids that exist."""


class Operations(Protocol):
    """Workers, queues, concurrency keys and partitions."""

    async def workers(self) -> list[WorkerView]:
        """The living first, by name, then those that were found dead lately."""

    async def worker(self, name: str) -> WorkerView:
        """Raises NotFoundError."""

    async def drain(self, worker: str) -> None:
        """Lets it finish what it runs, and end: it is told with its next heartbeat."""

    async def queues(self) -> list[QueueView]:
        """By name."""

    def limits(self) -> AsyncIterator[ConcurrencyKeyView]:
        """The concurrency keys that somebody holds or waits for, by key."""

    async def partitions(self) -> Sequence[PartitionView]:
        """By number."""

    async def partition_of(self, execution_id: ExecutionId) -> PartitionView:
        """The partition that decides an execution, and its owner."""


class Schedules(Protocol):
    """Workflows that are run by the clock."""

    async def add(self, schedule: Schedule) -> ScheduleView:
        """Its first tick is the next one from now on.

        Raises InvalidTriggerError, NotFoundError for an unknown workflow, InvalidInputError for an
        input that it does not take, ConflictError when there is a schedule of this id.
        """

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleView]:
        """By id; `after` is the last id of the previous page."""

    async def get(self, schedule_id: str) -> ScheduleView:
        """Raises NotFoundError."""

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleView:
        """Pauses a schedule, or resumes it; raises NotFoundError."""

    async def remove(self, schedule_id: str) -> None:
        """What it has started continues; raises NotFoundError."""


class Webhooks(Protocol):
    """Workflows that are run when another service calls; one for each workflow."""

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> WebhookView:
        """Raises InvalidTriggerError, NotFoundError for an unknown workflow, and ConflictError
        when it has a webhook, unless that is to be replaced.
        """

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[WebhookView]:
        """By workflow; `after` is the last one of the previous page."""

    async def get(self, workflow: str) -> WebhookView:
        """Raises NotFoundError."""

    async def remove(self, workflow: str) -> None:
        """Raises NotFoundError."""


class Tokens(Protocol):
    """Tokens of the HTTP API."""

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        days: int | None = None,
        per_minute: int | None = None,
    ) -> NewTokenView:
        """`token` of the view can't be shown again."""

    async def list(self) -> Sequence[TokenView]: ...

    async def revoke(self, token_id: str) -> None:
        """Raises NotFoundError."""


async def find_owner(operations: Operations, execution_id: ExecutionId) -> str | None:
    """The process that runs an execution; None when no living process has it."""
    partition = await operations.partition_of(execution_id)
    return None if partition.is_silent else partition.owner
