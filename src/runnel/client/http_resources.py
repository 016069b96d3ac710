"""`Client.dead_letters`: tasks of a server that need a person."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import TypeVar

import msgspec

from runnel.authoring.payloads import encode_payload
from runnel.client.bulk import BulkStep
from runnel.client.nodes import NodeDetail
from runnel.client.operations import LimitView, PartitionView, QueueLine
from runnel.client.reruns import Rerun
from runnel.client.transport import Call, Fields, Query, Transport, step
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.wording import shown
from runnel.errors import InputError
from runnel.ports.archive import ALL_EXECUTIONS, Cursor, ExecutionFilter, HeaderPage
from runnel.ports.store import Header
from runnel.triggers.schedule import KeptSchedule, Overlap, Progress, Schedule, Stored
from runnel.triggers.webhook import TOKEN_HEADER, Webhook, WebhookKind
from runnel.views.execution import ExecutionView, HistoryView, moment

# What a server answers, as the values that a local client returns.

T = TypeVar("T")

_MOMENTS = frozenset(
    {"created_at", "queued_at", "started_at", "finished_at", "next_at", "due", "at"}
)


def header_of(document: Mapping[str, Json]) -> Header:
    fields = _timed(document)
    fields["state"] = fields.pop("status")
    fields["definition"] = fields.pop("workflow_definition_id", "")
    return read(fields, Header)


def page_of(document: Mapping[str, Json]) -> HeaderPage:
    after = document["next"]
    return HeaderPage(
        headers=[header_of(each) for each in document["items"]],
        next=None if after is None else Cursor(after),
    )


def view_of(document: Mapping[str, Json]) -> ExecutionView:
    fields = _timed(document)
    fields["nodes"] = {name: _timed(node) for name, node in document["nodes"].items()}
    return read(fields, ExecutionView)


def detail_of(document: Mapping[str, Json]) -> NodeDetail:
    fields = _timed(document)
    fields["attempts"] = [_attempt(each) for each in document["attempts"]]
    if document["items"] is not None:
        items = [_timed(each) for each in document["items"]["items"]]
        fields["items"] = {**document["items"], "items": items}
    return read(fields, NodeDetail)


def _attempt(document: Mapping[str, Json]) -> dict[str, Json]:
    lines = [(seconds_of(each["at"]), each["level"], each["text"]) for each in document["logs"]]
    return {**_timed(document), "logs": lines}


def history_of(document: Mapping[str, Json]) -> list[HistoryView]:
    return [event_of(each) for each in document["items"]]


def event_of(document: Mapping[str, Json]) -> HistoryView:
    return read(_timed(document), HistoryView)


def read(document: Json, kind: type[T]) -> T:
    """Raises NotRunnelError for an answer that no Runnel gives."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        if isinstance(document, Fields):
            raise document.foreign(f"something else than expected: {error}") from error
        raise


def _timed(document: Mapping[str, Json]) -> dict[str, Json]:
    """Moments as seconds, to the millisecond."""
    return {
        name: seconds_of(value) if name in _MOMENTS and value is not None else value
        for name, value in document.items()
    }


def seconds_of(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


PATH = "/v1/dead-letters"
PAGE = 200


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """What a task was given, and what was wrong with it.

    `name` is what the other methods take. `execution_status` is that of the execution which a retry
    would rerun; None in lists, and when there is none.
    """

    name: str
    execution_id: ExecutionId
    workflow: str
    node: str
    item: int | None
    attempts: int
    queue: str
    handler: str
    reason: str
    error: str
    traceback: str | None
    config: Json
    rejected_at: datetime
    execution_status: ExecutionState | None = None


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """All letters of `rerun_of` are gone: `execution_id` runs again what failed there."""

    execution_id: ExecutionId
    rerun_of: ExecutionId
    letters: Sequence[str]


class NotRetried(msgspec.Struct, frozen=True, kw_only=True):
    rerun_of: ExecutionId
    letters: Sequence[str]
    code: str
    message: str


class ManyRetried(msgspec.Struct, frozen=True, kw_only=True):
    """`left` executions have such letters and were not looked at: call again."""

    retried: Sequence[Retried]
    refused: Sequence[NotRetried]
    left: int


class LettersOf(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are meant: those that all of the given fields hold for.

    `execution` is the beginning of an execution's id. All letters have to be asked for in so many
    words: `is_all`.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    older_than_s: float = 0.0
    is_all: bool = False


class DeadLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[LetterView]:
        """Newest first, page by page; `execution` is the beginning of an id."""
        place: str | None = None
        while True:
            query = [*_query(queue, workflow, execution), ("limit", str(PAGE))]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get(PATH, query)
            for each in read(page["items"], list[LetterView]):
                yield each
            place = page["next"]
            if place is None:
                return

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int:
        answer = await self._transport.get(f"{PATH}/count", _query(queue, workflow, execution))
        return read(answer["count"], int)

    async def get(self, name: str) -> LetterView:
        """By its name, in which the first characters of the execution do."""
        return read(await self._transport.get(f"{PATH}/{step(name)}"), LetterView)

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> Retried:
        """Runs again what failed in its execution, with other configs of its nodes if given.

        Raises WrongStateError while that execution is not final.
        """
        given = {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in (configs or {}).items()
        }
        body = {"configs": given}
        return read(await self._transport.post(f"{PATH}/{step(name)}/retry", body), Retried)

    async def retry_many(self, which: LettersOf, *, limit: int = 100) -> ManyRetried:
        """Those of `limit` executions at most, the oldest first."""
        body = {**_selection(which), "limit": limit}
        return read(await self._transport.post(f"{PATH}/retry", body), ManyRetried)

    async def purge(self, name: str) -> None:
        """Removes it for good; its execution stays as it is."""
        await self._transport.send(Call(method="DELETE", path=f"{PATH}/{step(name)}"))

    async def purge_many(self, which: LettersOf) -> int:
        """How many were removed."""
        answer = await self._transport.post(f"{PATH}/purge", _selection(which))
        return read(answer["purged"], int)


def _query(queue: str | None, workflow: str | None, execution: str) -> Query:
    given = {"queue": queue, "workflow": workflow, "execution": execution}
    return [(name, value) for name, value in given.items() if value]


def _selection(which: LettersOf) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(which)
    fields["all"] = fields.pop("is_all")
    return fields


# What of an execution is to run again, as requests have it.


def wish_of(wanted: Rerun) -> dict[str, Json]:
    return {
        "nodes": list(wanted.again),
        "whole": wanted.is_whole,
        "newest": wanted.is_newest,
        "configs": {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in wanted.configs.items()
        },
    }


# `Client.many`: what is done to all executions that a filter finds, in steps of the server.


class Many:
    """A filter without anything in it means every execution, and has to be given to say so.

    Each step that was done is told, with those that could not be done; who stops in between has
    done the others.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def cancel(
        self, wanted: ExecutionFilter, *, reason: str = "", is_forced: bool = False
    ) -> AsyncIterator[BulkStep]:
        """Ends those that are not final, from the newest on, 500 in each step."""
        body = {"reason": reason, "force": is_forced}
        async for each in self._steps("/v1/executions/cancel", wanted, body):
            yield each

    async def rerun(
        self, wanted: ExecutionFilter, rerun: Rerun | None = None, *, key: str = ""
    ) -> AsyncIterator[BulkStep]:
        """Reruns those that have failed, or are in the states of the filter, 100 in each step.

        Each once for each `key`, however often this is called.
        """
        body = {**wish_of(rerun or Rerun()), "key": key}
        async for each in self._steps("/v1/executions/rerun", wanted, body):
            yield each

    async def _steps(
        self, path: str, wanted: ExecutionFilter, body: Mapping[str, Json]
    ) -> AsyncIterator[BulkStep]:
        after = wanted.after
        while True:
            given = {**_chosen(wanted), **body, "after": after}
            found = read(await self._transport.post(path, given), BulkStep)
            yield found
            after = found.next
            if after is None:
                return


def _chosen(wanted: ExecutionFilter) -> dict[str, Json]:
    begin, end = wanted.created_from, wanted.created_before
    return {
        "status": [state.value for state in wanted.states],
        "workflow": wanted.workflow,
        "label": [f"{key}={value}" for key, value in wanted.labels.items()],
        "created_from": moment(begin) if isfinite(begin) else None,
        "created_before": moment(end) if isfinite(end) else None,
        "text": wanted.text,
        "rerun_of": wanted.rerun_of,
        "parent": wanted.parent,
        "children": wanted.with_children,
        "every": wanted == ALL_EXECUTIONS,
    }


# `Client.operations`: workers, queues, concurrency keys and partitions of a server.

OPERATIONS_PAGE = 200


class RunningTask(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: datetime


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is alive, draining, silent or dead; `queues` is None when it takes tasks of all.

    `tasks` are those that have run for the longest, as of its last heartbeat. What it has not said
    of itself yet is None.
    """

    worker: str
    state: str
    holds: int
    silent_s: float
    host: str | None
    pid: int | None
    queues: Sequence[str] | None
    handlers: Sequence[str]
    concurrency: int | None
    beat_s: float | None
    started_at: datetime | None
    version: str | None
    claimed_at: datetime | None
    tasks: Sequence[RunningTask]


class Operations:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def workers(self) -> list[WorkerView]:
        """The living first, by name, then those that were found dead lately."""
        return read((await self._transport.get("/v1/workers"))["items"], list[WorkerView])

    async def worker(self, name: str) -> WorkerView:
        return read(await self._transport.get(f"/v1/workers/{step(name)}"), WorkerView)

    async def drain(self, worker: str) -> None:
        """Lets it finish what it runs, and end: it is told with its next heartbeat."""
        await self._transport.post(f"/v1/workers/{step(worker)}/drain")

    async def queues(self) -> list[QueueLine]:
        """By name."""
        return read((await self._transport.get("/v1/queues"))["items"], list[QueueLine])

    async def limits(self) -> AsyncIterator[LimitView]:
        """The concurrency keys that somebody holds or waits for, by key."""
        after: str | None = None
        while True:
            query = [("limit", str(OPERATIONS_PAGE))] + (
                [] if after is None else [("after", after)]
            )
            page = await self._transport.get("/v1/limits", query)
            for each in read(page["items"], list[LimitView]):
                yield each
            after = page["next"]
            if after is None:
                return

    async def partitions(self) -> list[PartitionView]:
        """By number."""
        return read((await self._transport.get("/v1/partitions"))["items"], list[PartitionView])


# Schedules and webhooks of a server, as commands keep those of a store.

SCHEDULES, WEBHOOKS = "/v1/schedules", "/v1/webhooks"


class RemoteSchedules:
    """Raises what the server does; labels of Runnel's own are not sent along."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def add(self, schedule: Schedule) -> KeptSchedule:
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
            "starts_at": moment(schedule.starts_at),
            "ends_at": moment(schedule.ends_at),
        }
        return _schedule(await self._transport.post(SCHEDULES, body))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[KeptSchedule]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(SCHEDULES, query)
        return [_schedule(each) for each in answer["items"]]

    async def get(self, schedule_id: str) -> Stored:
        found = await self._transport.get(f"{SCHEDULES}/{step(schedule_id)}")
        return Stored(_schedule(found), 0)

    async def pause(self, schedule_id: str, *, is_paused: bool = True) -> KeptSchedule:
        what = "pause" if is_paused else "resume"
        return _schedule(await self._transport.post(f"{SCHEDULES}/{step(schedule_id)}/{what}"))

    async def remove(self, schedule_id: str) -> None:
        await self._transport.send(Call(method="DELETE", path=f"{SCHEDULES}/{step(schedule_id)}"))


class RemoteWebhooks:
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
        path = _webhook_path(webhook.workflow)
        call = Call(method="PUT", path=path, query=query, body=data)
        return _webhook(await self._transport.send(call))

    async def list(self, *, after: str = "", limit: int = 50) -> Sequence[Webhook]:
        query = [("limit", str(limit)), *([("after", after)] if after else [])]
        answer = await self._transport.get(WEBHOOKS, query)
        return [_webhook(each) for each in answer["items"]]

    async def get(self, workflow: str) -> Webhook:
        return _webhook(await self._transport.get(_webhook_path(workflow)))

    async def remove(self, workflow: str) -> None:
        await self._transport.send(Call(method="DELETE", path=_webhook_path(workflow)))


def _webhook_path(workflow: str) -> str:
    return f"/v1/workflows/{step(workflow)}/triggers/webhook"


def _schedule(found: Mapping[str, Json]) -> KeptSchedule:
    schedule = Schedule(
        id=found["id"],
        workflow=found["workflow"],
        version=found["version"],
        input=found["input"],
        labels=found["labels"],
        cron=found["cron"],
        interval_s=found["interval_s"],
        timezone=found["timezone"],
        overlap=Overlap(found["overlap"]),
        catch_up=found["catch_up"],
        is_paused=found["is_paused"],
        starts_at=_seconds(found["starts_at"]),
        ends_at=_seconds(found["ends_at"]),
    )
    last = found["last_execution_id"]
    progress = Progress(
        cursor=0.0,
        fired=found["fired"],
        skipped=found["skipped"],
        missed=found["missed"],
        failed=found["failed"],
        last_tick=_seconds(found["last_tick"]),
        last_execution=None if last is None else ExecutionId(last),
        last_skipped=_seconds(found["last_skipped"]),
        last_error=found["last_error"],
    )
    created_at = seconds_of(found["created_at"])
    return KeptSchedule(schedule=schedule, nonce="", created_at=created_at, progress=progress)


def _webhook(found: Mapping[str, Json]) -> Webhook:
    return Webhook(
        workflow=found["workflow"],
        version=found["version"],
        kind=WebhookKind(found["kind"]),
        secret=found["secret"],
        header=found["header"] or TOKEN_HEADER,
        mapping=found["mapping"],
        delivery_id=found["delivery_id"],
        labels=found["labels"],
        created_at=seconds_of(found["created_at"]),
    )


def _seconds(found: str | None) -> float | None:
    return None if found is None else seconds_of(found)


# Which executions are meant, as parameters of a request.


def states_of(names: Sequence[ExecutionState | str]) -> tuple[ExecutionState, ...]:
    """In capital letters or not; raises InputError."""
    known = {state.value: state for state in ExecutionState}
    for name in names:
        if name.upper() not in known:
            expected = ", ".join(known)
            raise InputError(f"states: expected some of {expected}, got {shown(name)}")
    return tuple(dict.fromkeys(known[name.upper()] for name in names))


def query_of(wanted: ExecutionFilter, *, with_page: bool = True) -> list[tuple[str, str]]:
    query = [("status", state.value) for state in wanted.states]
    query += [("label", f"{key}={value}") for key, value in wanted.labels.items()]
    single = {
        "workflow": wanted.workflow,
        "text": wanted.text,
        "rerun_of": wanted.rerun_of,
        "parent": wanted.parent,
        "created_from": moment(wanted.created_from) if isfinite(wanted.created_from) else None,
        "created_before": (
            moment(wanted.created_before) if isfinite(wanted.created_before) else None
        ),
        "children": "true" if wanted.with_children else None,
    }
    if with_page:
        single |= {"limit": str(wanted.limit), "after": wanted.after}
    return query + [(name, value) for name, value in single.items() if value]


# What a server tells of itself and of its workflows.


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow; `workflow_definition_id` is the hash of its content."""

    name: str
    version: int
    workflow_definition_id: DefinitionHash
    nodes: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """`parts` says of each why it is not ready; None when it is."""

    status: str
    parts: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        return not any(self.parts.values())


class About(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` is `embedded`, or `redis` with workers around it."""

    version: str
    engine: str

    @property
    def has_workers(self) -> bool:
        return self.engine != "embedded"
