"""A server as commands look at it: where a store of this machine would be."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import msgspec

from runnel.app.stores import StoreSession, build_store_session
from runnel.authoring.documents import read_document
from runnel.authoring.payloads import RESERVED_LABEL_PREFIX
from runnel.client.dead_letters import format_letter_name
from runnel.client.http_client import HttpClient, build_workflow_document
from runnel.client.http_resources import (
    build_filter_query,
    parse_answer,
    parse_header,
    parse_header_page,
    parse_history,
    parse_time,
)
from runnel.client.reruns import RerunSpec
from runnel.client.store_client import StoreClient as LocalClient
from runnel.client.transport import Query, ServerRequest, Transport, quote_path_segment
from runnel.core.codec import FORMAT_VERSION
from runnel.core.commands import CancelExecution, Command
from runnel.core.effects import DeadLetter
from runnel.core.ids import NO_ITEM, DefinitionHash, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import ErrorInfo, Workflow, decode_workflow, encode_workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import BrokenInvariantError, InputError, NotFoundError, WrongStateError
from runnel.notify.waiter import Completion, ListenForEnd
from runnel.ports import Backend
from runnel.ports.archive import (
    ALL_DEAD_LETTERS,
    ALL_EXECUTIONS,
    DeadLetterFilter,
    Definition,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
)
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import ExecutionChange, FeedPage, FeedPosition
from runnel.ports.store import NO_BLOBS, ExecutionHeader, LeaseRecord
from runnel.ports.workers import QueueRecord, RunningTaskInfo, WorkerInfo, WorkerRecord
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView
from runnel.views.operations import ServerInfo
from runnel.views.workflow import StoredWorkflow

# The client that commands have, of a server: it reads as a local one, and acts by requests.


class ServedClient(LocalClient):
    """`backend` is looked into only: what changes something is left to the server, which judges it.

    Labels of Runnel's own are not sent along: a server sets them by itself.
    """

    def __init__(
        self,
        server: HttpClient,
        backend: Backend,
        clock: Clock,
        ids: IdGenerator,
        *,
        get_completion: Callable[[str], Completion],
        listen: ListenForEnd,
    ) -> None:
        super().__init__(backend, clock, ids, get_completion=get_completion, listen=listen)
        self._server = server
        self._stored: tuple[Workflow, StoredWorkflow] | None = None

    async def submit(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
    ) -> ExecutionId:
        if execution_id is not None:
            raise InputError("over HTTP, an execution is named by an idempotency key, not by an id")
        if is_held:
            if input_ is not None or labels:
                raise InputError("over HTTP, an execution that is held gets its input by a trigger")
            return await self._server.hold(workflow, idempotency_key=idempotency_key)
        # A batch submits the same one again and again.
        if self._stored is None or self._stored[0] is not workflow:
            self._stored = workflow, await self._server.store(workflow)
        stored = self._stored[1]
        own = {
            key: value
            for key, value in (labels or {}).items()
            if not key.startswith(RESERVED_LABEL_PREFIX)
        }
        return await self._server.submit(
            stored.name,
            input_,
            labels=own,
            version=stored.version,
            idempotency_key=idempotency_key,
        )

    async def create_execution(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
        version: int | None = None,
    ) -> ExecutionHeader:
        """The server finds and stores the definition by itself, whatever `version` is."""
        begun = await self.submit(
            workflow,
            input_,
            labels=labels,
            is_held=is_held,
            idempotency_key=idempotency_key,
            execution_id=execution_id,
        )
        return await self.get_header(begun)

    async def rerun(
        self,
        execution_id: ExecutionId,
        options: RerunSpec | None = None,
        *,
        input_: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        return await self._server.rerun(
            execution_id, options, input=input_, idempotency_key=idempotency_key
        )

    async def trigger(
        self,
        execution_id: ExecutionId,
        input_: Json = None,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        await self._server.trigger(execution_id, input_, idempotency_key=idempotency_key)

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        await self._server.cancel(execution_id, reason=reason, is_forced=is_forced)

    async def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        await self._server.signal(execution_id, name, payload, signal_id=signal_id)

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        return await self._server.get(execution_id)


# Dead letters as a server tells of them.

LETTERS_PAGE = 500
QUEUE_PREFIX = "tasks:"
INBOX = "inbox"


class RemoteLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # Where the pages ended that were asked for last, by the name of their last letter.
        self._ends: dict[str, str] = {}

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        found: list[DeadLetter] = []
        place = (
            None
            if criteria.after is None
            else self._ends.pop(format_letter_name(criteria.after), None)
        )
        while len(found) < criteria.limit:
            query = [
                *_query(criteria),
                ("limit", str(min(LETTERS_PAGE, criteria.limit - len(found)))),
            ]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get("/v1/dead-letters", query)
            letters = [_letter(each) for each in page["items"]]
            found += [each for each in letters if each.rejected_at < criteria.before]
            place = page["next"]
            if place is None:
                return found
        if place is not None:
            self._ends = {format_letter_name(found[-1]): place}
        return found

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        answer = await self._transport.get("/v1/dead-letters/count", _query(criteria))
        return int(answer["count"])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        deleted = 0
        for letter in letters:
            path = f"/v1/dead-letters/{quote_path_segment(format_letter_name(letter))}"
            try:
                answer = await self._transport.send(ServerRequest(method="DELETE", path=path))
            except NotFoundError:
                continue
            deleted += answer["purged"]
        return deleted


def _query(wanted: DeadLetterFilter) -> Query:
    queue = None if wanted.queue is None else wanted.queue.removeprefix(QUEUE_PREFIX)
    given = {"queue": queue, "workflow": wanted.workflow, "execution": wanted.execution}
    return [(name, value) for name, value in given.items() if value]


def _letter(found: Mapping[str, Json]) -> DeadLetter:
    """One without a node is a command that could not be decided: its name stands for the node."""
    item, queue = found["item"], found["queue"]
    node = found["node"] or found["name"].partition("/")[2]
    kind, _, message = found["error"].partition(": ")
    return DeadLetter(
        token=TaskToken(
            ExecutionId(found["execution_id"]),
            NodeId(node),
            NO_ITEM if item is None else item,
            found["attempts"],
            Nonce(""),
        ),
        queue=queue if queue == INBOX else f"{QUEUE_PREFIX}{queue}",
        handler=found["handler"],
        config=msgspec.Raw(msgspec.json.encode(found["config"])),
        error=ErrorInfo(type=kind, message=message, traceback=found["traceback"]),
        reason=found["reason"],
        rejected_at=parse_time(found["rejected_at"]),
        workflow=found["workflow"],
    )


# Definitions, executions and their histories, as a server tells of them.

PAGE = 500
# So many ids make an address of 10 kB, which servers and proxies take.
IDS_AT_ONCE = 200


class RemoteArchive(RemoteLetters):
    """Moments are known to the millisecond; what was one entry of a history is one for each event.

    A page has 500 executions at most, whatever the `limit`.
    """

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        body = msgspec.json.encode(build_workflow_document(decode_workflow(document)))
        call = ServerRequest(method="POST", path="/v1/workflows", body=body, is_repeatable=True)
        return parse_answer((await self._transport.send(call))["version"], int)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        return await self._definition(f"/v1/definitions/{quote_path_segment(hash_)}")

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        found: list[Definition] = []
        place: str | None = after or None
        while len(found) < limit:
            query = [("limit", str(min(PAGE, limit - len(found)))), ("documents", "true")]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get("/v1/workflows", query)
            found += map(_definition, page["items"])
            place = page["next"]
            if place is None:
                break
        return found

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        query = [("limit", str(min(PAGE, limit))), ("documents", "true")]
        try:
            page = await self._transport.get(
                f"/v1/workflows/{quote_path_segment(name)}/versions", query
            )
        except NotFoundError:
            return ()
        return [_definition(each) for each in page["items"]]

    async def find_version(self, name: str, version: int) -> Definition | None:
        return await self._definition(
            f"/v1/workflows/{quote_path_segment(name)}", [("version", str(version))]
        )

    async def _definition(self, path: str, query: Query = ()) -> Definition | None:
        try:
            return _definition(await self._transport.get(path, query))
        except NotFoundError:
            return None

    async def delete_versions(self, name: str) -> int:
        call = ServerRequest(method="DELETE", path=f"/v1/workflows/{quote_path_segment(name)}")
        return parse_answer((await self._transport.send(call))["versions"], int)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        return (await self.get_headers([execution_id])).get(execution_id)

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        found: dict[ExecutionId, ExecutionHeader] = {}
        for first in range(0, len(ids), IDS_AT_ONCE):
            some = ids[first : first + IDS_AT_ONCE]
            answer = await self._look_up([("id", each) for each in some])
            found |= {header.execution_id: header for header in answer}
        return found

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        found = await self._look_up([("begins", prefix)])
        return [header.execution_id for header in found][:limit]

    async def _look_up(self, query: Query) -> list[ExecutionHeader]:
        answer = await self._transport.get("/v1/executions/lookup", query)
        return [parse_header(each) for each in answer["items"]]

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """Over HTTP, each event is an entry."""
        path = f"/v1/executions/{quote_path_segment(execution_id)}/history"
        try:
            answer = await self._transport.get(path, [("after", str(after))] if after else ())
        except NotFoundError:
            return ()
        return [
            msgspec.json.encode([FORMAT_VERSION, each.at, [{"type": each.event, **each.fields}]])
            for each in parse_history(answer)
        ]

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        some = msgspec.structs.replace(criteria, limit=min(PAGE, criteria.limit))
        return parse_header_page(
            await self._transport.get("/v1/executions", build_filter_query(some))
        )

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        query = build_filter_query(criteria, with_page=False)
        answer = await self._transport.get("/v1/executions/count", query)
        return parse_answer(answer["states"], dict[ExecutionState, ExecutionCount])


def _definition(found: Mapping[str, Json]) -> Definition:
    workflow = read_document(found["document"])
    return Definition(
        hash=DefinitionHash(found["workflow_definition_id"]),
        name=found["name"],
        version=found["version"],
        document=encode_workflow(workflow),
    )


# The feed of a server: asked for what is new, it answers when something is.

PATH = "/v1/changes"
WAIT_S_MAX = 30.0


class RemoteFeed:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def end(self) -> FeedPosition:
        return FeedPosition((await self._transport.get(PATH))["position"])

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """As many as the server gives, whatever the `limit`."""
        wait_s = min(wait_s, WAIT_S_MAX)
        query = [("after", after), ("wait", str(wait_s))]
        answer = await self._transport.get(PATH, query, long_poll_s=wait_s)
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


# Commands that an onlooker leaves, as requests.


class RemoteMailbox:
    """Takes what ends executions: anything else the server decides by itself when it is asked."""

    def __init__(self, server: HttpClient) -> None:
        self._server = server

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        requires_definition: bool = False,
    ) -> None:
        for command in commands:
            if not isinstance(command, CancelExecution):
                raise BrokenInvariantError(f"a {type(command).__name__} is not sent over HTTP")
            await self._cancel(command)

    async def _cancel(self, command: CancelExecution) -> None:
        """One that has ended meanwhile is left alone, as its owner would."""
        try:
            await self._server.cancel(
                command.execution_id, reason=command.reason, is_forced=command.is_forced
            )
        except WrongStateError:
            return


# Who works and who decides, as a server sees it: what it judged to be alive is so here, too.

OPERATIONS_QUEUE_PREFIX = "tasks:"
# Who asks for all partitions looks at each of them next.
FRESH_S = 0.5


class RemoteStore:
    """What an onlooker asks of a store: which partition, and who has it."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._seen: Mapping[int, Json] = {}
        self._seen_at = float("-inf")

    async def route(self, execution_id: ExecutionId, *, is_new: bool = False) -> int:
        path = f"/v1/executions/{quote_path_segment(execution_id)}/partition"
        return int((await self._transport.get(path))["partition"])

    async def partitions(self) -> Sequence[int]:
        return list(await self._look())

    async def observe(self, partition: int) -> LeaseRecord | None:
        """None for an owner that is silent: the server has waited for a sign of it."""
        now = self._clock.monotonic()
        seen = self._seen if now - self._seen_at < FRESH_S else await self._look()
        found = seen.get(partition)
        if found is None or found["owner"] is None or found["is_silent"]:
            return None
        return LeaseRecord(
            partition=partition,
            owner=found["owner"],
            epoch=found["epoch"] or 0,
            counter=_new_counter(now),
        )

    async def _look(self) -> Mapping[int, Json]:
        answer = await self._transport.get("/v1/partitions")
        self._seen = {each["partition"]: each for each in answer["items"]}
        self._seen_at = self._clock.monotonic()
        return self._seen


class RemoteTasks:
    """What an onlooker asks of task queues."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        answer = await self._transport.get("/v1/workers")
        found = [_worker(each, self._clock.monotonic()) for each in answer["items"]]
        return [each for each in found if with_dead or not each.is_dead]

    async def queues(self) -> Sequence[QueueRecord]:
        answer = await self._transport.get("/v1/queues")
        return [
            QueueRecord(
                queue=f"{OPERATIONS_QUEUE_PREFIX}{each['queue']}",
                depth=each["waiting"],
                waits_s=each["oldest_s"],
            )
            for each in answer["items"]
        ]


def _worker(found: Mapping[str, Json], now: float) -> WorkerRecord:
    about = None
    if found["host"] is not None:
        queues = found["queues"]
        about = WorkerInfo(
            host=found["host"],
            pid=found["pid"],
            queues=None if queues is None else tuple(queues),
            handlers=tuple(found["handlers"]),
            concurrency=found["concurrency"],
            started_at=parse_time(found["started_at"]),
            version=found["version"],
            is_draining=found["state"] == "draining",
            beat_s=found["beat_s"] or 0.0,
            claimed_at=parse_time(found["claimed_at"]) if found["claimed_at"] else 0.0,
            tasks=tuple(map(_task, found["tasks"])),
        )
    return WorkerRecord(
        worker=found["worker"],
        counter=0 if found["state"] == "silent" else _new_counter(now),
        holds=found["holds"],
        about=about,
        silent_s=found["silent_s"],
        is_dead=found["state"] == "dead",
    )


def _task(found: Mapping[str, Json]) -> RunningTaskInfo:
    item = NO_ITEM if found["item"] is None else found["item"]
    started_at = parse_time(found["started_at"])
    return parse_answer({**found, "item": item, "started_at": started_at}, RunningTaskInfo)


def _new_counter(now: float) -> int:
    """Never the same twice in a row: who judges by that finds whoever it is alive."""
    return int(now * 1_000_000)


# Large values as a server hands them out.


class RemoteValues:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, key: str) -> bytes:
        """Raises NotFoundError."""
        call = ServerRequest(
            method="GET",
            path="/v1/values",
            query=[("key", key)],
            is_repeatable=True,
            accepts_any_json=True,
        )
        return msgspec.json.encode(await self._transport.send(call))


# A person waits: longer for a server that is busy than for one that is not there.
RETRIES_FIRST = 1
RETRIES = 6


@dataclass(frozen=True, slots=True)
class RemoteBackend:
    """Those ports of a backend that an onlooker looks into, as far as one does."""

    archive: RemoteArchive
    store: RemoteStore
    tasks: RemoteTasks
    blobs: RemoteValues
    mailbox: RemoteMailbox
    feed: RemoteFeed


@asynccontextmanager
async def calling(settings: Settings) -> AsyncIterator[tuple[HttpClient, ServerInfo]]:
    """Raises NoServerError, NotRunnelError, NotAuthenticatedError before anything else happens."""
    url, token = settings.server_url, settings.server_token
    async with HttpClient(url, token, retries=RETRIES_FIRST) as client:
        about = await client.server()
        client.transport.retries = RETRIES
        yield client, about


@asynccontextmanager
async def looking_at_server(settings: Settings) -> AsyncIterator[StoreSession]:
    """As `calling`."""
    clock, ids = RealClock(), RandomIdGenerator()
    async with calling(settings) as (client, about):
        transport = client.transport
        seen = RemoteBackend(
            RemoteArchive(transport),
            RemoteStore(transport, clock),
            RemoteTasks(transport, clock),
            RemoteValues(transport),
            RemoteMailbox(client),
            RemoteFeed(transport),
        )
        # The rest of a backend is for those who run something, and they are on the server.
        backend = cast("Backend", seen)
        yield build_store_session(
            backend,
            clock,
            ids,
            has_workers=about.has_workers,
            client_factory=partial(ServedClient, client),
        )
