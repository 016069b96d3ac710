"""The method groups of `HttpClient`, such as `dead_letters`.

A method sends one request, or one request for each page.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import msgspec

from runnel.authoring.documents import read_document
from runnel.authoring.documents.export import to_document
from runnel.authoring.payloads import encode_payload
from runnel.client.dead_letters import LettersOf
from runnel.client.execution_lists import iter_pages
from runnel.client.reruns import RerunSpec
from runnel.client.transport import Query, ServerRequest, Transport, quote_path_segment
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterCount,
    DeadLetterDetail,
    DeadLetterView,
    PurgedLetters,
    RetriedLetters,
)
from runnel.views.execution import format_time
from runnel.views.operations import (
    ConcurrencyKeyView,
    PartitionView,
    QueueView,
    WorkerView,
)
from runnel.views.page import BulkStep, Listing, Page
from runnel.views.token import NewTokenView, Scope, TokenView
from runnel.views.trigger import Schedule, ScheduleView, Webhook, WebhookView
from runnel.views.value import build_output_query
from runnel.views.workflow import (
    ActiveVersion,
    DeletedWorkflow,
    StoredWorkflow,
    WorkflowDocument,
)

PAGE_SIZE = 200
PAGE_SIZE_MAX = 500
# The type of a response body that the client ignores.
NO_VIEW = dict[str, Json]
_WEBHOOK = ("triggers", "webhook")


class HttpGroup:
    """Base class of the method groups; `_PATH` is the path of a group's resource."""

    _PATH = ""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _make_path(self, *segments: str) -> str:
        return "/".join([self._PATH, *map(quote_path_segment, segments)])


class HttpDeadLetters(HttpGroup):
    """The client's `DeadLetters` over HTTP."""

    _PATH = "/v1/dead-letters"

    def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[DeadLetterView]:
        """Yields dead letters, newest first; `execution` is the beginning of an execution id."""
        query = [*_build_letter_query(queue, workflow, execution), ("limit", str(PAGE_SIZE))]
        return self._transport.iter_items(self._PATH, Page[DeadLetterView], query)

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int:
        query = _build_letter_query(queue, workflow, execution)
        return (await self._transport.get(f"{self._PATH}/count", DeadLetterCount, query)).count

    async def get(self, name: str) -> DeadLetterDetail:
        """Returns the dead letter of a name; the execution id in the name may be shortened."""
        return await self._transport.get(self._make_path(name), DeadLetterDetail)

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> RetriedLetters:
        """Reruns the failed nodes of the dead letter's execution.

        `configs` replace the configs of nodes. Raises WrongStateError while the execution is not
        final.
        """
        body = {"configs": _encode_configs(configs or {})}
        return await self._transport.post(self._make_path(name, "retry"), RetriedLetters, body)

    async def retry_many(self, selection: LettersOf, *, limit: int = 100) -> BulkRetryResult:
        """Retries the dead letters of at most `limit` executions, oldest first."""
        body = {**_build_selection_body(selection), "limit": limit}
        return await self._transport.post(f"{self._PATH}/retry", BulkRetryResult, body)

    async def purge(self, name: str) -> None:
        """Deletes a dead letter; its execution does not change."""
        await self._transport.delete(self._make_path(name), NO_VIEW)

    async def purge_many(self, selection: LettersOf) -> int:
        """Deletes the selected dead letters, and returns the number of deleted letters."""
        body = _build_selection_body(selection)
        return (await self._transport.post(f"{self._PATH}/purge", PurgedLetters, body)).purged


def _build_letter_query(queue: str | None, workflow: str | None, execution: str) -> Query:
    given = {"queue": queue, "workflow": workflow, "execution": execution}
    return [(name, value) for name, value in given.items() if value]


def _build_selection_body(selection: LettersOf) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(selection)
    fields["all"] = fields.pop("is_all")
    return fields


def _encode_configs(configs: Mapping[str, Json]) -> dict[str, Json]:
    return {
        node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
        for node, config in configs.items()
    }


def build_rerun_body(options: RerunSpec) -> dict[str, Json]:
    return {
        "nodes": list(options.again),
        "whole": options.is_whole,
        "newest": options.is_newest,
        "configs": _encode_configs(options.configs),
    }


class HttpValues(HttpGroup):
    """The client's `Values` over HTTP. A chunk has the size in which it arrives."""

    _PATH = "/v1/executions"

    async def output(
        self, execution_id: str, node_id: str | None = None, *, item: int | None = None
    ) -> Json:
        """Returns the output of an execution, of one of its nodes, or of one item of a map."""
        return await self._decode(self.stream_output(execution_id, node_id, item=item))

    async def input(self, execution_id: str) -> Json:
        """Returns the input of an execution."""
        return await self._decode(self.stream_input(execution_id))

    def stream_output(
        self, execution_id: str, node_id: str | None = None, *, item: int | None = None
    ) -> AsyncIterator[bytes]:
        """Yields the JSON of an output in chunks, for values that are large."""
        path = self._make_path(execution_id, "output")
        return self._transport.read_chunks(path + build_output_query(node_id, item))

    def stream_input(self, execution_id: str) -> AsyncIterator[bytes]:
        """Yields the JSON of the input of an execution in chunks."""
        return self._transport.read_chunks(self._make_path(execution_id, "input"))

    async def _decode(self, chunks: AsyncIterator[bytes]) -> Json:
        return self._transport.decode(b"".join([chunk async for chunk in chunks]), Any)


class HttpBulk(HttpGroup):
    """The client's `Bulk` over HTTP. An empty filter selects every execution.

    The server performs one step, and the method yields the result of the step with its failures. If
    the caller stops the iteration, the completed steps are not undone.
    """

    def cancel(
        self, criteria: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Cancels the executions that are not final, newest first, 500 in each step."""
        body = {"reason": reason, "force": is_forced}
        return iter_pages(partial(self._send_step, "cancel", body), criteria)

    def rerun(
        self, criteria: ExecutionFilter, options: RerunSpec | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns the executions in the filter's states, by default FAILED, 100 in each step.

        A repeated call with the same `key` and `options` reruns no execution twice.
        """
        body = {**build_rerun_body(options or RerunSpec()), "key": key}
        return iter_pages(partial(self._send_step, "rerun", body), criteria)

    async def _send_step(
        self, action: str, body: Mapping[str, Json], criteria: ExecutionFilter
    ) -> BulkStep:
        request = {**_build_filter_body(criteria), **body, "after": criteria.after}
        return await self._transport.post(f"/v1/executions/{action}", BulkStep, request)


class HttpOperations(HttpGroup):
    """The client's `Operations` over HTTP."""

    _PATH = "/v1"

    async def workers(self) -> list[WorkerView]:
        """Lists living workers by name, then workers that died recently."""
        return [*await self._transport.get("/v1/workers", Listing[WorkerView])]

    async def worker(self, name: str) -> WorkerView:
        return await self._transport.get(self._make_path("workers", name), WorkerView)

    async def drain(self, worker: str) -> None:
        """Makes a worker finish its tasks and end.

        After its next heartbeat it claims no more tasks.
        """
        await self._transport.post(self._make_path("workers", worker, "drain"), NO_VIEW)

    async def queues(self) -> list[QueueView]:
        """Lists the queues by name."""
        return [*await self._transport.get("/v1/queues", Listing[QueueView])]

    def limits(self) -> AsyncIterator[ConcurrencyKeyView]:
        """Yields the concurrency keys that tasks hold or wait for, sorted by key."""
        query = [("limit", str(PAGE_SIZE))]
        return self._transport.iter_items("/v1/limits", Page[ConcurrencyKeyView], query)

    async def partitions(self) -> list[PartitionView]:
        """Lists the partitions by number."""
        return [*await self._transport.get("/v1/partitions", Listing[PartitionView])]

    async def partition_of(self, execution_id: ExecutionId) -> PartitionView:
        """Returns the partition of an execution, with its owner."""
        path = self._make_path("executions", execution_id, "partition")
        return await self._transport.get(path, PartitionView)


class HttpWorkflows(HttpGroup):
    """The client's `Workflows` over HTTP."""

    _PATH = "/v1/workflows"

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the newest version of each workflow, by name.

        `after` is the last name of the previous page.
        """
        workflows: list[StoredWorkflow] = []
        cursor: str | None = after
        while cursor is not None and len(workflows) < limit:
            page_size = min(PAGE_SIZE_MAX, limit - len(workflows))
            query = _build_page_query(cursor, page_size)
            page = await self._transport.get(self._PATH, Page[StoredWorkflow], query)
            workflows += page.items
            cursor = page.next
        return workflows

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[StoredWorkflow]:
        """Lists the versions of a workflow, newest first; raises NotFoundError."""
        query = _build_page_query("", min(PAGE_SIZE_MAX, limit))
        path = self._make_path(name, "versions")
        return (await self._transport.get(path, Page[StoredWorkflow], query)).items

    async def get(self, name: str, version: int | None = None) -> WorkflowDocument:
        """Returns a version of a workflow, by default the active one, or else the newest."""
        query = [] if version is None else [("version", str(version))]
        return await self._transport.get(self._make_path(name), WorkflowDocument, query)

    async def activate(self, name: str, version: int | None, *, author: str) -> ActiveVersion:
        """Sets the version that `run`, webhooks and schedules use; None means the newest.

        The server ignores `author` if the request has a token, and uses the token's name.
        """
        body = {"version": version, "author": author}
        return await self._transport.post(self._make_path(name, "activate"), ActiveVersion, body)

    async def active(self, name: str) -> ActiveVersion:
        """Returns the version that runs by name, and the last activations; raises NotFoundError."""
        return await self._transport.get(self._make_path(name, "active"), ActiveVersion)

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        """Returns the graph of a stored definition; raises NotFoundError."""
        path = f"/v1/definitions/{quote_path_segment(hash_)}"
        return Graph(read_document((await self._transport.get(path, WorkflowDocument)).document))

    async def store(self, workflow: Workflow) -> StoredWorkflow:
        """Stores a workflow; content that is already stored keeps its version."""
        body = msgspec.Raw(encode_payload(build_workflow_document(workflow), where="workflow"))
        return await self._transport.post(self._PATH, StoredWorkflow, body, is_repeatable=True)

    async def delete(self, name: str) -> int:
        """Deletes all versions of a workflow, and returns the number of versions.

        Raises WrongStateError while an execution of the workflow is not final.
        """
        return (await self._transport.delete(self._make_path(name), DeletedWorkflow)).versions


def build_workflow_document(workflow: Workflow) -> dict[str, Json]:
    """Builds the document of a workflow with each node's complete retry policy.

    Without the complete policy, the server would fill in its own defaults.
    """
    document = to_document(workflow)
    for node, written in zip(workflow.nodes, document["nodes"], strict=True):
        written["retry"] = msgspec.structs.asdict(node.retry)
        if node.child is not None:
            written["config"]["definition"] = build_workflow_document(node.child)
    return document


class HttpSchedules(HttpGroup):
    """The client's `Schedules` over HTTP; the field `own_labels` of a schedule is not sent."""

    _PATH = "/v1/schedules"

    async def add(self, schedule: Schedule) -> ScheduleView:
        body = msgspec.structs.asdict(schedule)
        del body["own_labels"]
        body["starts_at"] = format_time(schedule.starts_at)
        body["ends_at"] = format_time(schedule.ends_at)
        return await self._transport.post(self._PATH, ScheduleView, body)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleView]:
        query = _build_page_query(after, limit)
        return (await self._transport.get(self._PATH, Page[ScheduleView], query)).items

    async def get(self, schedule_id: str) -> ScheduleView:
        return await self._transport.get(self._make_path(schedule_id), ScheduleView)

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleView:
        action = "pause" if is_paused else "resume"
        return await self._transport.post(self._make_path(schedule_id, action), ScheduleView)

    async def remove(self, schedule_id: str) -> None:
        await self._transport.delete(self._make_path(schedule_id), NO_VIEW)


class HttpWebhooks(HttpGroup):
    """The client's `Webhooks` over HTTP."""

    _PATH = "/v1/workflows"

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> WebhookView:
        """Adds the webhook of a workflow; with `replaces`, replaces an existing webhook.

        Raises ConflictError if the workflow has a webhook and `replaces` is false.
        """
        body = msgspec.structs.asdict(webhook)
        for name in ("workflow", "created_at", "format"):
            del body[name]
        request = ServerRequest(
            method="PUT",
            path=self._make_path(webhook.workflow, *_WEBHOOK),
            query=[] if replaces else [("is_new", "true")],
            body=msgspec.json.encode(body),
        )
        return await self._transport.send(request, WebhookView)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[WebhookView]:
        query = _build_page_query(after, limit)
        return (await self._transport.get("/v1/webhooks", Page[WebhookView], query)).items

    async def get(self, workflow: str) -> WebhookView:
        return await self._transport.get(self._make_path(workflow, *_WEBHOOK), WebhookView)

    async def remove(self, workflow: str) -> None:
        await self._transport.delete(self._make_path(workflow, *_WEBHOOK), NO_VIEW)


class HttpTokens(HttpGroup):
    """The client's `Tokens` over HTTP."""

    _PATH = "/v1/tokens"

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        days: int | None = None,
        per_minute: int | None = None,
    ) -> NewTokenView:
        body = {"name": name, "scopes": scopes, "days": days, "per_minute": per_minute}
        return await self._transport.post(self._PATH, NewTokenView, body)

    async def list(self) -> Sequence[TokenView]:
        return (await self._transport.get(self._PATH, Listing[TokenView])).items

    async def revoke(self, token_id: str) -> None:
        """Revokes a token; raises NotFoundError."""
        await self._transport.delete(self._make_path(token_id), NO_VIEW)


def _build_page_query(after: str, limit: int) -> Query:
    return [("limit", str(limit)), *([("after", after)] if after else [])]


# Encoding of execution filters as query parameters and as JSON.


def build_filter_query(
    criteria: ExecutionFilter, *, with_page: bool = True
) -> list[tuple[str, str]]:
    query = [("status", state.value) for state in criteria.states]
    query += [("label", label) for label in _format_labels(criteria)]
    fields = _build_single_fields(criteria) | {
        "children": "true" if criteria.with_children else None
    }
    if with_page:
        fields |= {"limit": str(criteria.limit), "after": criteria.after}
    return query + [(name, value) for name, value in fields.items() if value]


def _build_filter_body(criteria: ExecutionFilter) -> dict[str, Json]:
    return {
        "status": [state.value for state in criteria.states],
        "label": _format_labels(criteria),
        **_build_single_fields(criteria),
        "children": criteria.with_children,
        "every": msgspec.structs.replace(criteria, after=None) == ALL_EXECUTIONS,
    }


def _format_labels(criteria: ExecutionFilter) -> list[str]:
    return [f"{key}={value}" for key, value in criteria.labels.items()]


def _build_single_fields(criteria: ExecutionFilter) -> dict[str, str | None]:
    begin, end = criteria.created_from, criteria.created_before
    return {
        "workflow": criteria.workflow,
        "text": criteria.text,
        "rerun_of": criteria.rerun_of,
        "parent": criteria.parent,
        "created_from": format_time(begin) if isfinite(begin) else None,
        "created_before": format_time(end) if isfinite(end) else None,
    }
