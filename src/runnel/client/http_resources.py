"""The groups of `HttpClient`: what a server knows and does, by one request each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from math import isfinite
from typing import TypeVar

import msgspec

from runnel.authoring.documents import read_document
from runnel.authoring.documents.export import to_document
from runnel.authoring.payloads import encode_payload
from runnel.client.dead_letters import LettersOf as LettersOf  # noqa: PLC0414  # documented here
from runnel.client.definitions import StoredVersion
from runnel.client.reruns import RerunSpec
from runnel.client.transport import (
    Query,
    ResponseObject,
    ServerRequest,
    Transport,
    quote_path_segment,
)
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.wording import describe_value
from runnel.core.workflow import Workflow, encode_workflow
from runnel.errors import InputError
from runnel.ports.archive import ALL_EXECUTIONS, Definition, ExecutionFilter, HeaderPage, PageCursor
from runnel.ports.feed import ExecutionChange, FeedPage, FeedPosition
from runnel.ports.store import ExecutionHeader
from runnel.views import Timestamp, convert_view
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterDetail,
    DeadLetterView,
    RetriedLetters,
)
from runnel.views.execution import ExecutionSummary, format_time
from runnel.views.operations import ConcurrencyKeyView, PartitionView, QueueView, WorkerView
from runnel.views.page import BulkStep
from runnel.views.token import NewTokenView, Scope, TokenView
from runnel.views.trigger import Schedule, ScheduleView, Webhook, WebhookView

# What a server answers, as the values that a local client returns.

T = TypeVar("T")


def parse_header(document: Mapping[str, Json]) -> ExecutionHeader:
    view = parse_answer(document, ExecutionSummary)
    return ExecutionHeader(
        execution_id=view.execution_id,
        workflow=view.workflow,
        version=view.version,
        state=view.status,
        error=view.error,
        created_at=float(view.created_at),
        started_at=_to_seconds(view.started_at),
        finished_at=_to_seconds(view.finished_at),
        parent_id=view.parent_id,
        rerun_of=view.rerun_of,
        labels=view.labels,
        definition=view.workflow_definition_id,
    )


def _to_seconds(time: Timestamp | None) -> float | None:
    return None if time is None else float(time)


def parse_header_page(document: Mapping[str, Json]) -> HeaderPage:
    after = document["next"]
    return HeaderPage(
        headers=[parse_header(each) for each in document["items"]],
        next=None if after is None else PageCursor(after),
    )


def parse_answer(document: Json, kind: type[T]) -> T:
    """Raises NotRunnelError for an answer that no Runnel gives."""
    try:
        return convert_view(document, kind)
    except msgspec.ValidationError as error:
        if isinstance(document, ResponseObject):
            raise document.not_runnel_error(f"something else than expected: {error}") from error
        raise


DEAD_LETTERS_PATH = "/v1/dead-letters"
PAGE_SIZE = 200


class HttpDeadLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[DeadLetterView]:
        """Newest first, page by page; `execution` is the beginning of an id."""
        place: str | None = None
        while True:
            query = [*_build_letter_query(queue, workflow, execution), ("limit", str(PAGE_SIZE))]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get(DEAD_LETTERS_PATH, query)
            for each in parse_answer(page["items"], list[DeadLetterView]):
                yield each
            place = page["next"]
            if place is None:
                return

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int:
        answer = await self._transport.get(
            f"{DEAD_LETTERS_PATH}/count", _build_letter_query(queue, workflow, execution)
        )
        return parse_answer(answer["count"], int)

    async def get(self, name: str) -> DeadLetterDetail:
        """By its name, in which the first characters of the execution do."""
        path = f"{DEAD_LETTERS_PATH}/{quote_path_segment(name)}"
        return parse_answer(await self._transport.get(path), DeadLetterDetail)

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> RetriedLetters:
        """Runs again what failed in its execution, with other configs of its nodes if given.

        Raises WrongStateError while that execution is not final.
        """
        given = {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in (configs or {}).items()
        }
        body = {"configs": given}
        return parse_answer(
            await self._transport.post(
                f"{DEAD_LETTERS_PATH}/{quote_path_segment(name)}/retry", body
            ),
            RetriedLetters,
        )

    async def retry_many(self, selection: LettersOf, *, limit: int = 100) -> BulkRetryResult:
        """Those of `limit` executions at most, the oldest first."""
        body = {**_build_selection_body(selection), "limit": limit}
        return parse_answer(
            await self._transport.post(f"{DEAD_LETTERS_PATH}/retry", body), BulkRetryResult
        )

    async def purge(self, name: str) -> None:
        """Removes it for good; its execution stays as it is."""
        await self._transport.send(
            ServerRequest(method="DELETE", path=f"{DEAD_LETTERS_PATH}/{quote_path_segment(name)}")
        )

    async def purge_many(self, selection: LettersOf) -> int:
        """How many were removed."""
        answer = await self._transport.post(
            f"{DEAD_LETTERS_PATH}/purge", _build_selection_body(selection)
        )
        return parse_answer(answer["purged"], int)


def _build_letter_query(queue: str | None, workflow: str | None, execution: str) -> Query:
    given = {"queue": queue, "workflow": workflow, "execution": execution}
    return [(name, value) for name, value in given.items() if value]


def _build_selection_body(selection: LettersOf) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(selection)
    fields["all"] = fields.pop("is_all")
    return fields


# What of an execution is to run again, as requests have it.


def build_rerun_body(options: RerunSpec) -> dict[str, Json]:
    return {
        "nodes": list(options.again),
        "whole": options.is_whole,
        "newest": options.is_newest,
        "configs": {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in options.configs.items()
        },
    }


# `Client.many`: what is done to all executions that a filter finds, in steps of the server.


class HttpBulk:
    """A filter without anything in it means every execution, and has to be given to say so.

    Each step that was done is told, with those that could not be done; who stops in between has
    done the others.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def cancel(
        self, criteria: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Ends those that are not final, from the newest on, 500 in each step."""
        body = {"reason": reason, "force": is_forced}
        async for each in self._iter_steps("/v1/executions/cancel", criteria, body):
            yield each

    async def rerun(
        self, criteria: ExecutionFilter, options: RerunSpec | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns those that have failed, or are in the states of the filter, 100 in each step.

        Each once for each `key`, however often this is called.
        """
        body = {**build_rerun_body(options or RerunSpec()), "key": key}
        async for each in self._iter_steps("/v1/executions/rerun", criteria, body):
            yield each

    async def _iter_steps(
        self, path: str, criteria: ExecutionFilter, body: Mapping[str, Json]
    ) -> AsyncIterator[BulkStep]:
        after: str | None = criteria.after
        while True:
            given = {**_build_filter_body(criteria), **body, "after": after}
            found = parse_answer(await self._transport.post(path, given), BulkStep)
            yield found
            after = None if found.next is None else PageCursor(found.next)
            if after is None:
                return


def _build_filter_body(criteria: ExecutionFilter) -> dict[str, Json]:
    begin, end = criteria.created_from, criteria.created_before
    return {
        "status": [state.value for state in criteria.states],
        "workflow": criteria.workflow,
        "label": [f"{key}={value}" for key, value in criteria.labels.items()],
        "created_from": format_time(begin) if isfinite(begin) else None,
        "created_before": format_time(end) if isfinite(end) else None,
        "text": criteria.text,
        "rerun_of": criteria.rerun_of,
        "parent": criteria.parent,
        "children": criteria.with_children,
        "every": criteria == ALL_EXECUTIONS,
    }


# `Client.operations`: workers, queues, concurrency keys and partitions of a server.

OPERATIONS_PAGE_SIZE = 200


class HttpOperations:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def workers(self) -> list[WorkerView]:
        """The living first, by name, then those that were found dead lately."""
        return parse_answer((await self._transport.get("/v1/workers"))["items"], list[WorkerView])

    async def worker(self, name: str) -> WorkerView:
        return parse_answer(
            await self._transport.get(f"/v1/workers/{quote_path_segment(name)}"), WorkerView
        )

    async def drain(self, worker: str) -> None:
        """Lets it finish what it runs, and end: it is told with its next heartbeat."""
        await self._transport.post(f"/v1/workers/{quote_path_segment(worker)}/drain")

    async def queues(self) -> list[QueueView]:
        """By name."""
        return parse_answer((await self._transport.get("/v1/queues"))["items"], list[QueueView])

    async def limits(self) -> AsyncIterator[ConcurrencyKeyView]:
        """The concurrency keys that somebody holds or waits for, by key."""
        after: str | None = None
        while True:
            query = [("limit", str(OPERATIONS_PAGE_SIZE))] + (
                [] if after is None else [("after", after)]
            )
            page = await self._transport.get("/v1/limits", query)
            for each in parse_answer(page["items"], list[ConcurrencyKeyView]):
                yield each
            after = page["next"]
            if after is None:
                return

    async def partitions(self) -> list[PartitionView]:
        """By number."""
        return parse_answer(
            (await self._transport.get("/v1/partitions"))["items"], list[PartitionView]
        )

    async def partition_of(self, execution_id: ExecutionId) -> PartitionView:
        """The partition that decides an execution."""
        path = f"/v1/executions/{quote_path_segment(execution_id)}/partition"
        return parse_answer(await self._transport.get(path), PartitionView)


# The workflows that a server has.

DEFINITIONS_PAGE_SIZE = 500


class HttpWorkflows:
    """`Workflows` of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        definitions: list[Definition] = []
        cursor: str | None = after or None
        while len(definitions) < limit:
            page_size = min(DEFINITIONS_PAGE_SIZE, limit - len(definitions))
            query = [("limit", str(page_size)), ("documents", "true")]
            query += [] if cursor is None else [("after", cursor)]
            page = await self._transport.get("/v1/workflows", query)
            definitions += map(_parse_definition, page["items"])
            cursor = page["next"]
            if cursor is None:
                break
        return definitions

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        query = [("limit", str(min(DEFINITIONS_PAGE_SIZE, limit))), ("documents", "true")]
        path = f"/v1/workflows/{quote_path_segment(name)}/versions"
        page = await self._transport.get(path, query)
        return [_parse_definition(each) for each in page["items"]]

    async def get(self, name: str, version: int) -> Definition:
        path = f"/v1/workflows/{quote_path_segment(name)}"
        return _parse_definition(await self._transport.get(path, [("version", str(version))]))

    async def load_graph(self, hash_: DefinitionHash) -> Graph:
        path = f"/v1/definitions/{quote_path_segment(hash_)}"
        return _parse_graph(await self._transport.get(path))

    async def store(self, workflow: Workflow) -> StoredVersion:
        document = build_workflow_document(workflow)
        call = ServerRequest(
            method="POST",
            path="/v1/workflows",
            body=encode_payload(document, where="workflow"),
            is_repeatable=True,
        )
        answer = await self._transport.send(call)
        return StoredVersion(workflow.name, parse_answer(answer["version"], int), Graph(workflow))

    async def delete(self, name: str) -> int:
        call = ServerRequest(method="DELETE", path=f"/v1/workflows/{quote_path_segment(name)}")
        return parse_answer((await self._transport.send(call))["versions"], int)


def build_workflow_document(workflow: Workflow) -> dict[str, Json]:
    """With each node's whole retry policy: what is left out would be that of the server."""
    document = to_document(workflow)
    for node, written in zip(workflow.nodes, document["nodes"], strict=True):
        written["retry"] = msgspec.structs.asdict(node.retry)
        if node.child is not None:
            written["config"]["definition"] = build_workflow_document(node.child)
    return document


def _parse_definition(answer: Mapping[str, Json]) -> Definition:
    return Definition(
        hash=DefinitionHash(answer["workflow_definition_id"]),
        name=answer["name"],
        version=answer["version"],
        document=encode_workflow(read_document(answer["document"])),
    )


def _parse_graph(answer: Mapping[str, Json]) -> Graph:
    return Graph(read_document(answer["document"]))


# The feed of a server: asked for what is new, it answers when something is.

CHANGES_PATH = "/v1/changes"
CHANGES_WAIT_S_MAX = 30.0


class HttpFeed:
    """The `Feed` port of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def end(self) -> FeedPosition:
        return FeedPosition((await self._transport.get(CHANGES_PATH))["position"])

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """As many as the server gives, whatever the `limit`."""
        wait_s = min(wait_s, CHANGES_WAIT_S_MAX)
        query = [("after", after), ("wait", str(wait_s))]
        answer = await self._transport.get(CHANGES_PATH, query, long_poll_s=wait_s)
        changes = [
            ExecutionChange(
                ExecutionId(each["execution_id"]),
                None if each["status"] is None else ExecutionState(each["status"]),
                FeedPosition(each["position"]),
            )
            for each in answer["items"]
        ]
        position = FeedPosition(answer["position"])
        return FeedPage(changes=changes, position=position, has_gap=answer["has_gap"])


# Schedules and webhooks of a server, as commands keep those of a store.

SCHEDULES_PATH, WEBHOOKS_PATH = "/v1/schedules", "/v1/webhooks"


class HttpSchedules:
    """Raises what the server does; labels of Runnel's own are not sent along."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, schedule: Schedule) -> ScheduleView:
        body = {
            "id": schedule.id,
            "workflow": schedule.workflow,
            "version": schedule.version,
            "input": schedule.input,
            "labels": schedule.labels,
            "cron": schedule.cron,
            "interval_s": schedule.interval_s,
            "timezone": schedule.timezone,
            "overlap": schedule.overlap.value,
            "catch_up": schedule.catch_up,
            "is_paused": schedule.is_paused,
            "starts_at": format_time(schedule.starts_at),
            "ends_at": format_time(schedule.ends_at),
        }
        return parse_answer(await self._transport.post(SCHEDULES_PATH, body), ScheduleView)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleView]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(SCHEDULES_PATH, query)
        return parse_answer(answer["items"], list[ScheduleView])

    async def get(self, schedule_id: str) -> ScheduleView:
        path = f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}"
        return parse_answer(await self._transport.get(path), ScheduleView)

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleView:
        action = "pause" if is_paused else "resume"
        path = f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}/{action}"
        return parse_answer(await self._transport.post(path), ScheduleView)

    async def remove(self, schedule_id: str) -> None:
        await self._transport.send(
            ServerRequest(
                method="DELETE", path=f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}"
            )
        )


class HttpWebhooks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> WebhookView:
        """Without `replaces`, raises ConflictError when the workflow has one."""
        body = {
            "version": webhook.version,
            "kind": webhook.kind.value,
            "secret": webhook.secret,
            "header": webhook.header,
            "mapping": webhook.mapping,
            "delivery_id": webhook.delivery_id,
            "labels": webhook.labels,
        }
        query = [] if replaces else [("is_new", "true")]
        data = msgspec.json.encode(body)
        path = _build_webhook_path(webhook.workflow)
        call = ServerRequest(method="PUT", path=path, query=query, body=data)
        return parse_answer(await self._transport.send(call), WebhookView)

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[WebhookView]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(WEBHOOKS_PATH, query)
        return parse_answer(answer["items"], list[WebhookView])

    async def get(self, workflow: str) -> WebhookView:
        return parse_answer(await self._transport.get(_build_webhook_path(workflow)), WebhookView)

    async def remove(self, workflow: str) -> None:
        await self._transport.send(
            ServerRequest(method="DELETE", path=_build_webhook_path(workflow))
        )


def _build_webhook_path(workflow: str) -> str:
    return f"/v1/workflows/{quote_path_segment(workflow)}/triggers/webhook"


# The tokens that a server takes.

TOKENS_PATH = "/v1/tokens"


class HttpTokens:
    """`Tokens` of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        days: int | None = None,
        per_minute: int | None = None,
    ) -> NewTokenView:
        body = {"name": name, "scopes": scopes, "days": days, "per_minute": per_minute}
        return parse_answer(await self._transport.post(TOKENS_PATH, body), NewTokenView)

    async def list(self) -> Sequence[TokenView]:
        answer = await self._transport.get(TOKENS_PATH)
        return parse_answer(answer["items"], list[TokenView])

    async def revoke(self, token_id: str) -> None:
        """Raises NotFoundError."""
        path = f"{TOKENS_PATH}/{quote_path_segment(token_id)}"
        await self._transport.send(ServerRequest(method="DELETE", path=path))


# Which executions are meant, as parameters of a request.


def parse_states(names: Sequence[ExecutionState | str]) -> tuple[ExecutionState, ...]:
    """In capital letters or not; raises InputError."""
    known = {state.value: state for state in ExecutionState}
    for name in names:
        if name.upper() not in known:
            expected = ", ".join(known)
            raise InputError(f"states: expected some of {expected}, got {describe_value(name)}")
    return tuple(dict.fromkeys(known[name.upper()] for name in names))


def build_filter_query(
    criteria: ExecutionFilter, *, with_page: bool = True
) -> list[tuple[str, str]]:
    query = [("status", state.value) for state in criteria.states]
    query += [("label", f"{key}={value}") for key, value in criteria.labels.items()]
    single = {
        "workflow": criteria.workflow,
        "text": criteria.text,
        "rerun_of": criteria.rerun_of,
        "parent": criteria.parent,
        "created_from": format_time(criteria.created_from)
        if isfinite(criteria.created_from)
        else None,
        "created_before": (
            format_time(criteria.created_before) if isfinite(criteria.created_before) else None
        ),
        "children": "true" if criteria.with_children else None,
    }
    if with_page:
        single |= {"limit": str(criteria.limit), "after": criteria.after}
    return query + [(name, value) for name, value in single.items() if value]
