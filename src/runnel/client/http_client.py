"""A Runnel server from outside: its workflows and executions, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from runnel.authoring.builder import STEP_HANDLER, WorkflowDAG
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.documents import load_file
from runnel.authoring.payloads import encode_payload
from runnel.authoring.python_files import load_workflow, parse_python_path
from runnel.client.definitions import VERSION_KNOWN_S
from runnel.client.http_resources import (
    HttpBulk,
    HttpDeadLetters,
    HttpFeed,
    HttpOperations,
    HttpSchedules,
    HttpTokens,
    HttpWebhooks,
    HttpWorkflows,
    build_filter_query,
    build_rerun_body,
    build_workflow_document,
    parse_answer,
    parse_header,
    parse_header_page,
    parse_states,
)
from runnel.client.listing import check_execution_id, choose_by_prefix
from runnel.client.nodes import ITEMS_PAGE_SIZE
from runnel.client.reruns import RerunSpec
from runnel.client.transport import (
    Query,
    ServerRequest,
    Transport,
    quote_path_segment,
    resolve_server_address,
)
from runnel.core.codec import FORMAT_VERSION, HistoryEntry, decode_entry
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.wording import describe_value
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, NotFoundError, WorkflowFailedError
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionCount, ExecutionFilter, HeaderPage
from runnel.ports.store import ExecutionHeader
from runnel.views.execution import ExecutionView, HistoryEvent
from runnel.views.node import NodeDetail
from runnel.views.operations import Readiness, ServerInfo
from runnel.views.workflow import StoredWorkflow

# What can be run on a server: a name that is known there, or a workflow in any of its forms.

WorkflowSource: TypeAlias = Workflow | Graph | TracedWorkflow[..., Any] | WorkflowDAG | Path
WorkflowOrName: TypeAlias = WorkflowSource | str


def load_remote_workflow(source: WorkflowSource) -> Workflow:
    """Raises InvalidWorkflowError; a Python file is imported.

    Raises InputError for steps that are functions in this process: no server has them.
    """
    workflow = _load_source(source)
    for node in workflow.nodes:
        if node.handler == STEP_HANDLER:
            raise InputError(
                f"workflow {describe_value(workflow.name)}: step {describe_value(node.id)} is a "
                f"function of this "
                "process, which a server can't call; use @workflow and @task, or add_node"
            )
    return workflow


def _build_entry(view: HistoryEvent) -> HistoryEntry:
    event = {"type": view.event, **view.fields}
    return decode_entry(msgspec.json.encode([FORMAT_VERSION, float(view.at), [event]]))


def _load_source(source: WorkflowSource) -> Workflow:
    if isinstance(source, Workflow):
        return source
    if isinstance(source, Graph):
        return source.workflow
    if isinstance(source, TracedWorkflow | WorkflowDAG):
        return source.to_workflow()
    if isinstance(source, Path):
        file = parse_python_path(str(source))
        return load_file(source) if file is None else load_workflow(file).to_workflow()
    raise InputError(
        f"expected the name of a workflow, a Path of a file, a @workflow or a WorkflowDAG, "
        f"got {describe_value(source)}"
    )


# `runnel.Client`: what a program can ask of a Runnel server.

# A server holds a request for a minute at most.
LONG_POLL_S = 30.0
PAGE_SIZE = 200
DEFAULT_RETRIES = 4
PAGE_SIZE_MAX = 500
# So many ids make an address of 10 kB, which servers and proxies take.
IDS_PER_LOOKUP = 200


class _KnownWorkflow(NamedTuple):
    source: WorkflowSource
    name: str
    version: int
    until: float


class HttpClient:
    """A server's workflows and executions; `async with` closes its connections.

    `url` and `token` are those of RUNNEL_SERVER and RUNNEL_TOKEN unless given, and at last
    http://127.0.0.1:8080 without a token. An answer is waited for `timeout_s`; what is safe to
    repeat is tried `retries` times more.

    `schedules`, `webhooks`, `dead_letters`, `operations` and `many` have the rest of what a server
    can do. Every method raises what the same call on this machine would: NotFoundError,
    InvalidWorkflowError, WrongStateError and the others of `runnel.errors`; and besides
    NoServerError, NotAuthenticatedError, MissingScopeError, TooManyRequestsError.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._clock, self._ids = RealClock(), RandomIdGenerator()
        self.transport = Transport(
            resolve_server_address(url, token),
            self._clock,
            self._ids,
            timeout_s=timeout_s,
            retries=retries,
        )
        self.schedules = HttpSchedules(self.transport)
        self.webhooks = HttpWebhooks(self.transport)
        self.dead_letters = HttpDeadLetters(self.transport)
        self.operations = HttpOperations(self.transport)
        self.tokens = HttpTokens(self.transport)
        self.many = HttpBulk(self.transport)
        self.library = HttpWorkflows(self.transport)
        self.changes = HttpFeed(self.transport)
        self._stored: _KnownWorkflow | None = None
        self._storing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.transport.close()

    async def submit(
        self,
        workflow: WorkflowOrName,
        input: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Begins an execution and returns its id, without waiting for its end.

        A text is the name of a workflow that the server has, of which `version` may be chosen; a
        Path is a file. With a key that was used before, it is the execution of then.
        """
        name = workflow
        if not isinstance(name, str):
            name, version = await self._store_once(name)
        body = {
            "input": msgspec.Raw(encode_payload(input, where="input")),
            "labels": dict(labels or {}),
            "version": version,
        }
        key = idempotency_key or self._make_key()
        begun = await self.transport.post(
            f"/v1/workflows/{quote_path_segment(name)}/run", body, key=key
        )
        return ExecutionId(begun["execution_id"])

    async def run(
        self,
        workflow: WorkflowOrName,
        input: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionView:
        """As `submit`, and waits until it has completed.

        Raises WorkflowFailedError when it fails or is cancelled, TimeoutError when that takes
        longer than `timeout_s`: it goes on then.
        """
        execution_id = await self.submit(
            workflow, input, labels=labels, version=version, idempotency_key=idempotency_key
        )
        found = await self.wait(execution_id, timeout_s=timeout_s)
        if found.status is not ExecutionState.COMPLETED:
            raise WorkflowFailedError(
                found.execution_id, found.workflow, status=found.status, error=found.error
            )
        return found

    async def hold(
        self, workflow: WorkflowSource, *, idempotency_key: str | None = None
    ) -> ExecutionId:
        """Stores an execution that starts when it is triggered."""
        document = build_workflow_document(load_remote_workflow(workflow))
        key = idempotency_key or self._make_key()
        held = await self.transport.post("/v1/workflow", document, key=key)
        return ExecutionId(held["execution_id"])

    async def trigger(
        self, execution_id: str, input: Json = None, *, idempotency_key: str | None = None
    ) -> None:
        """Starts one that is held; raises WrongStateError when it was started before.

        Called again with the same key and input, nothing happens.
        """
        body = {"input_params": msgspec.Raw(encode_payload(input, where="input"))}
        key = idempotency_key or self._make_key()
        await self.transport.post(
            f"/v1/workflow/trigger/{quote_path_segment(execution_id)}", body, key=key
        )

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> ExecutionView:
        """The execution once it is final; raises TimeoutError when that takes longer."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            left_s = LONG_POLL_S if deadline is None else deadline - self._clock.monotonic()
            poll_s = max(0.0, min(LONG_POLL_S, left_s))
            found = parse_answer(
                await self.transport.get(
                    f"/v1/executions/{quote_path_segment(execution_id)}/wait",
                    [("timeout", f"{poll_s:.3f}")],
                    long_poll_s=poll_s,
                ),
                ExecutionView,
            )
            if found.status in FINAL_EXECUTION_STATES:
                return found
            if left_s <= 0:
                raise TimeoutError(f"execution {execution_id} is not final after {timeout_s} s")

    async def get(self, execution_id: str) -> ExecutionView:
        """With its nodes and their outputs."""
        path = f"/v1/executions/{quote_path_segment(execution_id)}"
        return parse_answer(await self.transport.get(path), ExecutionView)

    async def node(
        self,
        execution_id: str,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> NodeDetail:
        """One node: its attempts, config, inputs, output and log lines; or an item of a map.

        Items come in pages, behind `items_after`.
        """
        query = [("items_after", str(items_after)), ("items_limit", str(items_limit))]
        query += [] if item is None else [("item", str(item))]
        path = (
            f"/v1/executions/{quote_path_segment(execution_id)}/nodes/{quote_path_segment(node_id)}"
        )
        return parse_answer(await self.transport.get(path, query), NodeDetail)

    async def history(self, execution_id: str) -> list[HistoryEvent]:
        """Everything that has happened in it, in order."""
        path = f"/v1/executions/{quote_path_segment(execution_id)}/history"
        answer = await self.transport.get(path)
        return parse_answer(answer["items"], list[HistoryEvent])

    async def follow(self, execution_id: str) -> AsyncIterator[HistoryEvent]:
        """Everything that happens in it, from its beginning, as it happens; until it is final."""
        async for each in self.transport.stream(
            f"/v1/executions/{quote_path_segment(execution_id)}/events"
        ):
            if each.event == "end":
                return
            yield parse_answer(each.data, HistoryEvent)

    async def list_executions(self, criteria: ExecutionFilter = ALL_EXECUTIONS) -> HeaderPage:
        """One page, newest first; of 500 at most, whatever the `limit`."""
        limited = msgspec.structs.replace(criteria, limit=min(PAGE_SIZE_MAX, criteria.limit))
        return parse_header_page(
            await self.transport.get("/v1/executions", build_filter_query(limited))
        )

    async def executions(
        self,
        *,
        states: Sequence[ExecutionState | str] = (),
        workflow: str | None = None,
        labels: Mapping[str, str] | None = None,
        text: str = "",
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        with_children: bool = False,
    ) -> AsyncIterator[ExecutionHeader]:
        """All that are so, newest first, page by page.

        `text` is part of an id, a workflow's name, a label's value or an error.
        """
        wanted = ExecutionFilter(
            states=parse_states(states),
            workflow=workflow,
            labels=dict(labels or {}),
            text=text,
            created_from=-inf if created_from is None else created_from.timestamp(),
            created_before=inf if created_before is None else created_before.timestamp(),
            with_children=with_children,
            limit=PAGE_SIZE,
        )
        while True:
            page = await self.list_executions(wanted)
            for header in page:
                yield header
            if page.next is None:
                return
            wanted = msgspec.structs.replace(wanted, after=page.next)

    async def count_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        """How many there are in each state, or how many at least."""
        query = build_filter_query(criteria, with_page=False)
        found = await self.transport.get("/v1/executions/count", query)
        return parse_answer(found["states"], dict[ExecutionState, ExecutionCount])

    async def find(self, text: str) -> ExecutionId:
        """The execution that this text names: its id, or the beginning of it if that is unique."""
        check_execution_id(text)
        headers = await self._look_up([("begins", text)])
        return choose_by_prefix(text, [header.execution_id for header in headers][:2])

    async def summaries(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, ExecutionHeader]:
        """Of the ids that exist."""
        headers: dict[ExecutionId, ExecutionHeader] = {}
        for first in range(0, len(ids), IDS_PER_LOOKUP):
            page = await self._look_up([("id", id_) for id_ in ids[first : first + IDS_PER_LOOKUP]])
            headers |= {header.execution_id: header for header in page}
        return headers

    async def _look_up(self, query: Query) -> list[ExecutionHeader]:
        answer = await self.transport.get("/v1/executions/lookup", query)
        return [parse_header(each) for each in answer["items"]]

    async def read_entries(
        self, execution_id: ExecutionId, *, after: int = 0
    ) -> Sequence[HistoryEntry]:
        """The history after its first `after` events, each of which is an entry here.

        Empty for an unknown execution. Times are known to the millisecond.
        """
        path = f"/v1/executions/{quote_path_segment(execution_id)}/history"
        try:
            answer = await self.transport.get(path, [("after", str(after))] if after else ())
        except NotFoundError:
            return ()
        events = parse_answer(answer["items"], list[HistoryEvent])
        return [_build_entry(event) for event in events]

    async def cancel(self, execution_id: str, *, reason: str = "", is_forced: bool = False) -> None:
        """Clean-up nodes still run, unless it `is_forced`."""
        path = f"/v1/executions/{quote_path_segment(execution_id)}/cancel"
        await self.transport.post(path, {"reason": reason, "force": is_forced})

    async def signal(
        self,
        execution_id: str,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Tells it what one of its nodes waits for; the same `signal_id` is one signal."""
        id_ = signal_id or self._make_key()
        body = {
            "name": name,
            "payload": msgspec.Raw(encode_payload(payload, where="payload")),
            "signal_id": id_,
        }
        await self.transport.send(
            ServerRequest(
                method="POST",
                path=f"/v1/executions/{quote_path_segment(execution_id)}/signal",
                body=msgspec.json.encode(body),
                is_repeatable=True,
            )
        )

    async def rerun(
        self,
        execution_id: str,
        options: RerunSpec | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Begins a new execution that takes over what a finished one had completed.

        With the input of that one, unless another is given.
        """
        body = {
            **build_rerun_body(options or RerunSpec()),
            "input": msgspec.Raw(encode_payload(input, where="input")),
        }
        path = f"/v1/executions/{quote_path_segment(execution_id)}/rerun"
        begun = await self.transport.post(path, body, key=idempotency_key or self._make_key())
        return ExecutionId(begun["execution_id"])

    async def store(self, workflow: WorkflowSource) -> StoredWorkflow:
        """Under the version that its content has, or else the next; nothing is run."""
        document = build_workflow_document(load_remote_workflow(workflow))
        call = ServerRequest(
            method="POST",
            path="/v1/workflows",
            body=encode_payload(document, where="workflow"),
            is_repeatable=True,
        )
        return parse_answer(await self.transport.send(call), StoredWorkflow)

    async def delete_workflow(self, name: str) -> int:
        """How many versions it had; executions that have ended stay readable.

        Raises WrongStateError while executions of it are not final.
        """
        call = ServerRequest(method="DELETE", path=f"/v1/workflows/{quote_path_segment(name)}")
        return parse_answer((await self.transport.send(call))["versions"], int)

    async def workflows(self) -> AsyncIterator[StoredWorkflow]:
        """The newest version of each, by name."""
        after: str | None = None
        while True:
            query = [("limit", str(PAGE_SIZE))] + ([] if after is None else [("after", after)])
            page = await self.transport.get("/v1/workflows", query)
            for each in parse_answer(page["items"], list[StoredWorkflow]):
                yield each
            after = page["next"]
            if after is None:
                return

    async def versions(self, name: str, *, limit: int = 50) -> list[StoredWorkflow]:
        """Newest first."""
        path = f"/v1/workflows/{quote_path_segment(name)}/versions"
        page = await self.transport.get(path, [("limit", str(limit))])
        return parse_answer(page["items"], list[StoredWorkflow])

    async def document(self, name: str, version: int | None = None) -> dict[str, Json]:
        """A workflow as it could be written in a file; by default the newest version."""
        query = [] if version is None else [("version", str(version))]
        found = await self.transport.get(f"/v1/workflows/{quote_path_segment(name)}", query)
        return parse_answer(found["document"], dict[str, Json])

    async def server(self) -> ServerInfo:
        """What the server is."""
        return parse_answer(await self.transport.get("/v1/server"), ServerInfo)

    async def ready(self) -> Readiness:
        """Whether the server can be given work, and if not, which part of it can't be reached."""
        call = ServerRequest(
            method="GET",
            path="/health/ready",
            is_repeatable=True,
            accepted_statuses=[HTTPStatus.SERVICE_UNAVAILABLE],
        )
        return parse_answer(await self.transport.send(call), Readiness)

    async def _store_once(self, workflow: WorkflowSource) -> tuple[str, int]:
        """A batch submits the same workflow again and again: it is stored once a second."""
        async with self._storing:
            known, now = self._stored, self._clock.monotonic()
            if known is None or known.source is not workflow or now >= known.until:
                stored = await self.store(workflow)
                until = self._clock.monotonic() + VERSION_KNOWN_S
                known = self._stored = _KnownWorkflow(workflow, stored.name, stored.version, until)
            return known.name, known.version

    def _make_key(self) -> str:
        return f"{self._ids.nonce()}{self._ids.nonce()}"
