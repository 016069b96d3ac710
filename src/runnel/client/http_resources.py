"""The groups of `HttpClient`: what a server knows and does, by one request each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import TypeVar

import msgspec

from runnel.authoring.documents import read_document
from runnel.authoring.documents.export import to_document
from runnel.authoring.payloads import encode_payload
from runnel.client.dead_letters import LettersOf as LettersOf  # noqa: PLC0414  # documented here
from runnel.client.definitions import StoredVersion
from runnel.client.nodes import NodeDetail
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
from runnel.triggers.schedule import (
    Overlap,
    Schedule,
    ScheduleProgress,
    ScheduleRecord,
    StoredSchedule,
)
from runnel.triggers.webhook import TOKEN_HEADER, Webhook, WebhookKind
from runnel.views import convert_view
from runnel.views.dead_letter import (
    BulkRetryResult,
    DeadLetterDetail,
    DeadLetterView,
    RetriedLetters,
)
from runnel.views.execution import ExecutionView, HistoryView, format_time
from runnel.views.operations import ConcurrencyKeyView, PartitionView, QueueView, WorkerView
from runnel.views.page import BulkStep

# What a server answers, as the values that a local client returns.

T = TypeVar("T")

_TIME_FIELDS = frozenset(
    {"created_at", "queued_at", "started_at", "finished_at", "next_at", "due", "at"}
)


def parse_header(document: Mapping[str, Json]) -> ExecutionHeader:
    fields = _parse_times(document)
    fields["state"] = fields.pop("status")
    fields["definition"] = fields.pop("workflow_definition_id", "")
    return parse_answer(fields, ExecutionHeader)


def parse_header_page(document: Mapping[str, Json]) -> HeaderPage:
    after = document["next"]
    return HeaderPage(
        headers=[parse_header(each) for each in document["items"]],
        next=None if after is None else PageCursor(after),
    )


def parse_execution_view(document: Mapping[str, Json]) -> ExecutionView:
    fields = _parse_times(document)
    fields["nodes"] = {name: _parse_times(node) for name, node in document["nodes"].items()}
    return parse_answer(fields, ExecutionView)


def parse_node_detail(document: Mapping[str, Json]) -> NodeDetail:
    fields = _parse_times(document)
    fields["attempts"] = [_parse_attempt(each) for each in document["attempts"]]
    if document["items"] is not None:
        items = [_parse_times(each) for each in document["items"]["items"]]
        fields["items"] = {**document["items"], "items": items}
    return parse_answer(fields, NodeDetail)


def _parse_attempt(document: Mapping[str, Json]) -> dict[str, Json]:
    lines = [(parse_time(each["at"]), each["level"], each["text"]) for each in document["logs"]]
    return {**_parse_times(document), "logs": lines}


def parse_history(document: Mapping[str, Json]) -> list[HistoryView]:
    return [parse_history_event(each) for each in document["items"]]


def parse_history_event(document: Mapping[str, Json]) -> HistoryView:
    return parse_answer(_parse_times(document), HistoryView)


def parse_answer(document: Json, kind: type[T]) -> T:
    """Raises NotRunnelError for an answer that no Runnel gives."""
    try:
        return convert_view(document, kind)
    except msgspec.ValidationError as error:
        if isinstance(document, ResponseObject):
            raise document.not_runnel_error(f"something else than expected: {error}") from error
        raise


def _parse_times(document: Mapping[str, Json]) -> dict[str, Json]:
    """Moments as seconds, to the millisecond."""
    return {
        name: parse_time(value) if name in _TIME_FIELDS and value is not None else value
        for name, value in document.items()
    }


def parse_time(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


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
            after = found.next
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

    async def add(self, schedule: Schedule) -> ScheduleRecord:
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
        return _parse_schedule(await self._transport.post(SCHEDULES_PATH, body))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[ScheduleRecord]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(SCHEDULES_PATH, query)
        return [_parse_schedule(each) for each in answer["items"]]

    async def get(self, schedule_id: str) -> StoredSchedule:
        found = await self._transport.get(f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}")
        return StoredSchedule(_parse_schedule(found), 0)

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> ScheduleRecord:
        what = "pause" if is_paused else "resume"
        return _parse_schedule(
            await self._transport.post(f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}/{what}")
        )

    async def remove(self, schedule_id: str) -> None:
        await self._transport.send(
            ServerRequest(
                method="DELETE", path=f"{SCHEDULES_PATH}/{quote_path_segment(schedule_id)}"
            )
        )


class HttpWebhooks:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, webhook: Webhook, *, replaces: bool = False) -> Webhook:
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
        return _parse_webhook(await self._transport.send(call))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Webhook]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(WEBHOOKS_PATH, query)
        return [_parse_webhook(each) for each in answer["items"]]

    async def get(self, workflow: str) -> Webhook:
        return _parse_webhook(await self._transport.get(_build_webhook_path(workflow)))

    async def remove(self, workflow: str) -> None:
        await self._transport.send(
            ServerRequest(method="DELETE", path=_build_webhook_path(workflow))
        )


def _build_webhook_path(workflow: str) -> str:
    return f"/v1/workflows/{quote_path_segment(workflow)}/triggers/webhook"


def _parse_schedule(document: Mapping[str, Json]) -> ScheduleRecord:
    schedule = Schedule(
        id=document["id"],
        workflow=document["workflow"],
        version=document["version"],
        input=document["input"],
        labels=document["labels"],
        cron=document["cron"],
        interval_s=document["interval_s"],
        timezone=document["timezone"],
        overlap=Overlap(document["overlap"]),
        catch_up=document["catch_up"],
        is_paused=document["is_paused"],
        starts_at=_parse_optional_time(document["starts_at"]),
        ends_at=_parse_optional_time(document["ends_at"]),
    )
    last = document["last_execution_id"]
    progress = ScheduleProgress(
        cursor=0.0,
        fired=document["fired"],
        skipped=document["skipped"],
        missed=document["missed"],
        failed=document["failed"],
        last_tick=_parse_optional_time(document["last_tick"]),
        last_execution=None if last is None else ExecutionId(last),
        last_skipped=_parse_optional_time(document["last_skipped"]),
        last_error=document["last_error"],
    )
    created_at = parse_time(document["created_at"])
    return ScheduleRecord(schedule=schedule, nonce="", created_at=created_at, progress=progress)


def _parse_webhook(document: Mapping[str, Json]) -> Webhook:
    return Webhook(
        workflow=document["workflow"],
        version=document["version"],
        kind=WebhookKind(document["kind"]),
        secret=document["secret"],
        header=document["header"] or TOKEN_HEADER,
        mapping=document["mapping"],
        delivery_id=document["delivery_id"],
        labels=document["labels"],
        created_at=parse_time(document["created_at"]),
    )


def _parse_optional_time(text: str | None) -> float | None:
    return None if text is None else parse_time(text)


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


# What a server tells of itself and of its workflows.


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow; `workflow_definition_id` is the hash of its content."""

    name: str
    version: int
    workflow_definition_id: DefinitionHash
    nodes: int
