"""The `Client` protocol, which commands and programs use over a store or over HTTP.

`StoreClient` and `HttpClient` implement `Client`. `HttpClient` also has the groups `Operations`,
`Schedules`, `Webhooks` and `Tokens` as attributes. Over a store, each of these groups is a separate
object: packages above this one build it, or it needs only a part of the store.

The annotations are not evaluated, so that a command does not import views that it does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import structs

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
    from runnel.views.workflow import ActiveVersion, StoredWorkflow, WorkflowDocument

# The default number of items of a map in one `NodeDetail`.
ITEMS_PAGE_SIZE = 50


class Workflows(Protocol):
    """The stored workflows, by name and version."""

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the newest version of each workflow, by name.

        `after` is the last name of the previous page.
        """

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the versions of a workflow, newest first; raises NotFoundError."""

    async def get(self, name: str, version: int | None = None) -> WorkflowDocument:
        """Returns a version of a workflow, by default the active one, or else the newest.

        Raises NotFoundError.
        """

    async def activate(self, name: str, version: int | None, *, author: str) -> ActiveVersion:
        """Sets the version that `run`, webhooks and schedules use; None means the newest.

        Raises NotFoundError for an unknown version. Over HTTP, the name of the token is the author.
        """

    async def active(self, name: str) -> ActiveVersion:
        """Returns the version that runs by name, and the last activations; raises NotFoundError."""

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        """Returns the graph of a stored definition; raises NotFoundError."""

    async def store(self, workflow: Workflow) -> StoredWorkflow:
        """Stores a workflow; content that is already stored keeps its version.

        Raises InvalidWorkflowError.
        """

    async def delete(self, name: str) -> int:
        """Deletes all versions of a workflow, and returns the number of versions.

        Raises WrongStateError while executions of the workflow are not final.
        """


class DeadLetters(Protocol):
    """Dead letters: tasks without further attempts, and commands that can't be processed."""

    def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[DeadLetterView]:
        """Yields dead letters, newest first; `execution` is the beginning of an execution id."""

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int: ...

    async def get(self, name: str) -> DeadLetterDetail:
        """Returns the dead letter of a name; the execution id in the name may be shortened."""

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> RetriedLetters:
        """Reruns the failed nodes of the dead letter's execution.

        `configs` replace the configs of nodes. Raises WrongStateError while the execution is not
        final.
        """

    async def retry_many(self, selection: LettersOf, *, limit: int = 100) -> BulkRetryResult:
        """Retries the dead letters of at most `limit` executions, oldest first."""

    async def purge(self, name: str) -> None:
        """Deletes a dead letter; its execution does not change."""

    async def purge_many(self, selection: LettersOf) -> int:
        """Deletes the selected dead letters, and returns the number of deleted letters."""


class Bulk(Protocol):
    """Bulk commands, which act on all executions that match a filter, step by step."""

    def cancel(
        self, criteria: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Cancels the executions that are not final, newest first, 500 in each step."""

    def rerun(
        self, criteria: ExecutionFilter, options: RerunSpec | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns the executions in the filter's states, by default FAILED, 100 in each step.

        A repeated call with the same `key` and `options` reruns no execution twice.
        """


class Values(Protocol):
    """The whole inputs and outputs of executions, also those that views show as previews.

    Every method raises NotFoundError for an unknown execution, node or item, and WrongStateError
    if the execution, node or item has no output.
    """

    async def output(
        self, execution_id: ExecutionId, node_id: str | None = None, *, item: int | None = None
    ) -> Json:
        """Returns the output of an execution, of one of its nodes, or of one item of a map."""

    async def input(self, execution_id: ExecutionId) -> Json:
        """Returns the input of an execution."""

    def stream_output(
        self, execution_id: ExecutionId, node_id: str | None = None, *, item: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yields the JSON of an output in chunks, for values that are large."""

    def stream_input(self, execution_id: ExecutionId) -> AsyncIterator[bytes]:
        """Yields the JSON of the input of an execution in chunks."""


class Client(Protocol):
    """A client for the executions of a store or of a server.

    Both implementations raise the same errors of `runnel.errors`. Over HTTP, a method can also
    raise NoServerError, NotAuthenticatedError, MissingScopeError and TooManyRequestsError.
    """

    @property
    def library(self) -> Workflows: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    @property
    def many(self) -> Bulk: ...

    @property
    def values(self) -> Values: ...

    async def submit(
        self,
        workflow: Workflow | Graph,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores the workflow and starts an execution; does not wait until the execution ends.

        Without a `priority`, the execution has the priority of the workflow.

        If the caller gives a graph, it must come from `compile_canonical`: it is not compiled
        again.
        """

    async def submit_many(
        self,
        workflow: Workflow | Graph,
        inputs: Sequence[Json],
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_keys: Sequence[str] | None = None,
    ) -> list[ExecutionId]:
        """Starts an execution for each of at most 1,000 inputs; returns the ids in their order.

        Raises InvalidInputError with the problems of all inputs, before anything is stored. A
        repeated call with the same `idempotency_keys`, one for each input, starts nothing twice.
        """

    async def hold(
        self,
        workflow: Workflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores a held execution, which starts when `trigger` is called.

        `trigger` checks the input, and may replace it.
        """

    async def trigger(
        self,
        execution_id: ExecutionId,
        input: Json = None,
        /,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        """Starts a held execution; raises WrongStateError if the execution was already started."""

    async def rerun(
        self,
        execution_id: ExecutionId,
        options: RerunSpec | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Starts a new execution that reuses the completed nodes of a final execution."""

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        """Cancels an execution. Its clean-up nodes still run, unless `is_forced` is true."""

    async def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Sends a signal to the node that waits for it; a repeated `signal_id` has no effect."""

    async def wait(
        self, execution_id: ExecutionId, *, timeout_s: float | None = None
    ) -> ExecutionView:
        """Waits until the execution is final, and returns it as `get` does.

        Raises TimeoutError after `timeout_s`.
        """

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        """Returns an execution with its nodes and their outputs; raises NotFoundError.

        A large value is a preview; `values` reads the whole value.
        """

    async def node(
        self,
        execution_id: ExecutionId,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> NodeDetail:
        """Returns a node, or one item of a map.

        A map also has one page of its items: those after the item number `items_after`.
        """

    async def history(self, execution_id: ExecutionId) -> list[HistoryEvent]:
        """Returns all events of an execution, in order; raises NotFoundError."""

    def follow(self, execution_id: ExecutionId, *, after: int = 0) -> AsyncIterator[HistoryEvent]:
        """Yields the events of an execution as they happen, until it is final.

        Raises NotFoundError.

        `after` is the number of events to skip. An execution that could not be created has no
        event.
        """

    async def list_executions(self, criteria: ExecutionFilter) -> Page[ExecutionSummary]:
        """Returns one page of executions, newest first; raises InputError."""

    async def count_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        """Counts the executions in each state; stops counting a state at a maximum."""

    async def find(self, text: str) -> ExecutionId:
        """Returns the execution id that equals the text, or the only id that begins with it.

        Raises NotFoundError.
        """

    async def summaries(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, ExecutionSummary]:
        """Returns the summaries of the executions that exist, by id."""


class Operations(Protocol):
    """Workers, queues, concurrency keys and partitions."""

    async def workers(self) -> list[WorkerView]:
        """Lists living workers by name, then workers that died recently."""

    async def worker(self, name: str) -> WorkerView:
        """Returns one worker; raises NotFoundError."""

    async def drain(self, worker: str) -> None:
        """Makes a worker finish its tasks and end.

        After its next heartbeat it claims no more tasks.

        Raises NotFoundError, and WrongStateError for a dead worker.
        """

    async def queues(self) -> list[QueueView]:
        """Lists the queues by name."""

    def limits(self) -> AsyncIterator[ConcurrencyKeyView]:
        """Yields the concurrency keys that tasks hold or wait for, sorted by key."""

    async def partitions(self) -> Sequence[PartitionView]:
        """Lists the partitions by number."""

    async def partition_of(self, execution_id: ExecutionId) -> PartitionView:
        """Returns the partition of an execution, with its owner."""


class Schedules(Protocol):
    """Schedules, which run workflows at given times."""

    async def add(self, schedule: Schedule) -> ScheduleView:
        """Adds a schedule, which fires for the first time at its first tick after this call.

        Raises InvalidTriggerError, NotFoundError for an unknown workflow, InvalidInputError for an
        input that the workflow refuses, and ConflictError if the id is in use.
        """

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleView]:
        """Lists schedules by id; `after` is the last id of the previous page."""

    async def get(self, schedule_id: str) -> ScheduleView:
        """Returns a schedule; raises NotFoundError."""

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleView:
        """Pauses a schedule, or resumes it; raises NotFoundError."""

    async def remove(self, schedule_id: str) -> None:
        """Removes a schedule. Its executions continue. Raises NotFoundError."""


class Webhooks(Protocol):
    """Webhooks, which other services call to run workflows. A workflow has at most one webhook."""

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> WebhookView:
        """Adds the webhook of a workflow; with `replaces`, replaces an existing webhook.

        Raises InvalidTriggerError, NotFoundError for an unknown workflow, and ConflictError if the
        workflow has a webhook and `replaces` is false.
        """

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[WebhookView]:
        """Lists webhooks by workflow; `after` is the last workflow of the previous page."""

    async def get(self, workflow: str) -> WebhookView:
        """Returns the webhook of a workflow; raises NotFoundError."""

    async def remove(self, workflow: str) -> None:
        """Removes the webhook of a workflow; raises NotFoundError."""


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
        """Creates a token. Only the returned view has the token's text, which is not stored."""

    async def list(self) -> Sequence[TokenView]: ...

    async def revoke(self, token_id: str) -> None:
        """Revokes a token; raises NotFoundError."""


async def find_owner(operations: Operations, execution_id: ExecutionId) -> str | None:
    """Returns the name of the process that runs an execution; None if no process runs it."""
    partition = await operations.partition_of(execution_id)
    return None if partition.is_silent else partition.owner


async def load_whole_output(client: Client, view: ExecutionView) -> ExecutionView:
    """Returns the view with the whole output of the execution, also if it is large."""
    if view.output_preview is None:
        return view
    output = await client.values.output(view.execution_id)
    return structs.replace(view, output=output, output_preview=None)


async def load_whole_input(client: Client, view: ExecutionView) -> ExecutionView:
    """Returns the view with the whole input of the execution, also if it is large."""
    if view.input_preview is None:
        return view
    input_ = await client.values.input(view.execution_id)
    return structs.replace(view, input=input_, input_preview=None)
