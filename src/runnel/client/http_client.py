"""`runnel.Client`: the workflows and executions of a server, over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from runnel.authoring.builder import STEP_HANDLER, WorkflowDAG
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.documents import load_file
from runnel.authoring.payloads import encode_payload
from runnel.authoring.python_files import load_workflow
from runnel.authoring.python_paths import parse_python_path
from runnel.client.batch import (
    IN_FLIGHT_MAX,
    BatchFeeder,
    BatchOptions,
    BatchResult,
    build_batch,
    load_result,
)
from runnel.client.definitions import VERSION_KNOWN_S
from runnel.client.execution_lists import (
    check_execution_id,
    choose_by_prefix,
    search_executions,
)
from runnel.client.http_resources import (
    NO_VIEW,
    PAGE_SIZE,
    PAGE_SIZE_MAX,
    HttpBulk,
    HttpDeadLetters,
    HttpOperations,
    HttpSchedules,
    HttpTokens,
    HttpValues,
    HttpWebhooks,
    HttpWorkflows,
    build_filter_query,
    build_rerun_body,
)
from runnel.client.protocol import ITEMS_PAGE_SIZE, load_whole_output
from runnel.client.reruns import RerunSpec
from runnel.client.transport import (
    Query,
    ServerRequest,
    Transport,
    quote_path_segment,
    resolve_server_address,
)
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, WorkflowFailedError
from runnel.notify.event_bus import EventBus
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter
from runnel.views.execution import (
    AcceptedRequest,
    ExecutionCounts,
    ExecutionSummary,
    ExecutionView,
    HistoryEvent,
    HistoryView,
    NewBatch,
    StateCount,
    make_event_id,
)
from runnel.views.node import NodeDetail
from runnel.views.operations import Readiness, ServerInfo
from runnel.views.page import Listing, Page
from runnel.views.workflow import StoredWorkflow

# A caller gives a workflow as a name under which the server stores it, as a file, or as an object.

WorkflowSource: TypeAlias = Workflow | Graph | TracedWorkflow[..., Any] | WorkflowDAG | Path
WorkflowOrName: TypeAlias = WorkflowSource | str


def load_remote_workflow(source: WorkflowSource) -> Workflow:
    """Returns the workflow of a source; loads the workflow if the source is a file.

    Raises InvalidWorkflowError. Raises InputError if a step is a function of this process, because
    the server can't call such a function.
    """
    workflow = _load_source(source)
    for node in workflow.nodes:
        if node.handler == STEP_HANDLER:
            raise InputError(
                f"workflow {describe_value(workflow.name)}: step {describe_value(node.id)} is a "
                "function of this process, which a server can't call; use @workflow and @task, or "
                "add_node"
            )
    return workflow


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
        "expected the name of a workflow, the Path of a file, a @workflow or a WorkflowDAG, "
        f"got {describe_value(source)}"
    )


# The wait of one long poll. A server accepts 60 s at most.
LONG_POLL_S = 30.0
DEFAULT_RETRIES = 4
# The number of ids in one request. 200 ids make a URL of 10 kB, which servers and proxies accept.
IDS_PER_LOOKUP = 200


# The workflows whose versions a client remembers. It holds them, so that their ids stay unique.
STORED_WORKFLOWS_MAX = 100


class _KnownWorkflow(NamedTuple):
    source: WorkflowSource
    name: str
    version: int
    until: float


class HttpClient:
    """A client of a Runnel server; `async with` closes its connections.

    `url` and `token` default to RUNNEL_SERVER and RUNNEL_TOKEN, and then to http://127.0.0.1:8080
    without a token. A request waits `timeout_s` for its response. A failed request that is safe to
    repeat is repeated up to `retries` times.

    `schedules`, `webhooks`, `dead_letters`, `operations`, `many`, `tokens`, `library` and `values`
    are groups of further methods. Every method raises the same errors of `runnel.errors` as a
    client over a store, such as NotFoundError or WrongStateError. Every method can also raise
    NoServerError, NotAuthenticatedError, MissingScopeError and TooManyRequestsError.
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
        self.values = HttpValues(self.transport)
        self._stored: dict[int, _KnownWorkflow] = {}
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
        priority: int | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Starts an execution and returns its id; does not wait until the execution ends.

        If `workflow` is a text, it is the name of a workflow that the server stores; `version`
        selects one of its versions. If `workflow` is a Path, it is a workflow file. A second call
        with the same key returns the execution of the first call. Without a `priority`, the
        execution has the priority of the workflow.
        """
        return await self._create_execution(
            workflow,
            input,
            labels=labels,
            priority=priority,
            version=version,
            idempotency_key=idempotency_key,
        )

    async def submit_many(
        self,
        workflow: WorkflowOrName,
        inputs: Sequence[Json],
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        version: int | None = None,
        idempotency_keys: Sequence[str] | None = None,
    ) -> list[ExecutionId]:
        """Starts an execution for each of at most 1,000 inputs; returns the ids in their order.

        Raises InvalidInputError with the problems of all inputs, before anything is stored. A
        repeated call with the same `idempotency_keys`, one for each input, starts nothing twice.
        `workflow` and `version` are as in `submit`.
        """
        name = workflow
        if not isinstance(name, str):
            name, version = await self._store_once(name)
        body: dict[str, Json] = {
            "inputs": [
                msgspec.Raw(encode_payload(value, where=f"inputs[{index}]"))
                for index, value in enumerate(inputs)
            ],
            "labels": dict(labels or {}),
            "priority": priority,
            "version": version,
        }
        if idempotency_keys is not None:
            body["idempotency_keys"] = list(idempotency_keys)
        key = self._make_key() if idempotency_keys is None else None
        path = f"/v1/workflows/{quote_path_segment(name)}/batch"
        batch = await self.transport.post(path, NewBatch, body, key=key, is_repeatable=True)
        return [*batch.execution_ids]

    async def run_many(
        self,
        workflow: WorkflowOrName,
        inputs: Iterable[Json],
        *,
        name: str | None = None,
        id_field: str | None = None,
        in_flight: int = IN_FLIGHT_MAX,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        retry_failed: bool = False,
    ) -> AsyncGenerator[BatchResult, None]:
        """Runs an execution for each input; yields each result when its execution has ended.

        At most `in_flight` executions are unfinished at a time; executions that wait for a signal
        do not count. Checks all inputs before the first submit, and raises InvalidInputError. A
        failed execution is a result, not an error.

        A later call with the same `name` continues the batch: inputs with an execution are not
        submitted again, and failed ones are rerun only with `retry_failed`. `id_field` names the
        field that identifies an input, such as `order.number`; by default, its content does.
        """
        options = BatchOptions(
            name=name,
            id_field=id_field,
            in_flight=in_flight,
            priority=priority,
            retry_failed=retry_failed,
        )
        if isinstance(workflow, str):
            stored = await self.library.get(workflow)
            source = (await self.library.load_graph(stored.workflow_definition_id)).workflow
        else:
            source = load_remote_workflow(workflow)
        batch = await asyncio.to_thread(
            build_batch,
            source,
            list(inputs),  # an iterator of the user runs in the thread of the caller
            options,
            labels=labels or {},
            default_name=self._make_key(),
        )
        feeder = BatchFeeder(batch, self, self._clock, event_bus=EventBus(), is_over_http=True)
        async for outcome in feeder.run(asyncio.Event()):
            yield await load_result(self, outcome)

    async def run(
        self,
        workflow: WorkflowOrName,
        input: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionView:
        """Submits an execution, and waits until it has completed.

        The view has the whole output of the execution, also if it is large. Raises
        WorkflowFailedError if the execution fails or is cancelled. Raises TimeoutError after
        `timeout_s`, while the execution continues.
        """
        deadline = self._make_deadline(timeout_s)
        request = await self._build_run_request(
            workflow,
            input,
            labels=labels,
            priority=priority,
            version=version,
            idempotency_key=idempotency_key,
            wait_s=LONG_POLL_S if timeout_s is None else max(0.0, min(LONG_POLL_S, timeout_s)),
        )
        view = await self._wait_in_request(request)
        if not isinstance(view, ExecutionView) or view.status not in FINAL_EXECUTION_STATES:
            view = await self._wait_until(deadline, view.execution_id, timeout_s)
        if view.status is not ExecutionState.COMPLETED:
            raise WorkflowFailedError(
                view.execution_id, view.workflow, status=view.status, error=view.error
            )
        return await load_whole_output(self, view)

    async def hold(
        self,
        workflow: WorkflowOrName,
        input: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores a held execution, which starts when `trigger` is called.

        `trigger` checks the input, and may replace it. `workflow` and `version` are as in `submit`.
        """
        return await self._create_execution(
            workflow,
            input,
            labels=labels,
            priority=priority,
            version=version,
            idempotency_key=idempotency_key,
            is_held=True,
        )

    async def trigger(
        self, execution_id: str, input: Json = None, *, idempotency_key: str | None = None
    ) -> None:
        """Starts a held execution; raises WrongStateError if the execution was already started.

        A repeated call with the same key and input has no effect.
        """
        body = {"input_params": msgspec.Raw(encode_payload(input, where="input"))}
        key = idempotency_key or self._make_key()
        path = f"/v1/workflow/trigger/{quote_path_segment(execution_id)}"
        await self.transport.post(path, NO_VIEW, body, key=key)

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> ExecutionView:
        """Waits until the execution is final, and returns it as `get` does.

        Raises TimeoutError after `timeout_s`.
        """
        return await self._wait_until(self._make_deadline(timeout_s), execution_id, timeout_s)

    def _make_deadline(self, timeout_s: float | None) -> float | None:
        return None if timeout_s is None else self._clock.monotonic() + timeout_s

    async def _wait_until(
        self, deadline: float | None, execution_id: str, timeout_s: float | None
    ) -> ExecutionView:
        path = _build_path(execution_id, "/wait")
        while True:
            remaining_s = LONG_POLL_S if deadline is None else deadline - self._clock.monotonic()
            poll_s = max(0.0, min(LONG_POLL_S, remaining_s))
            query = [("timeout", f"{poll_s:.3f}")]
            view = await self.transport.get(path, ExecutionView, query, long_poll_s=poll_s)
            if view.status in FINAL_EXECUTION_STATES:
                return view
            if remaining_s <= 0:
                raise TimeoutError(f"execution {execution_id} is not final after {timeout_s} s")

    async def get(self, execution_id: str) -> ExecutionView:
        """Returns an execution with its nodes and their outputs; raises NotFoundError.

        A large value is a preview; `values` reads the whole value.
        """
        return await self.transport.get(_build_path(execution_id), ExecutionView)

    async def node(
        self,
        execution_id: str,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> NodeDetail:
        """Returns a node, or one item of a map, with its attempts, config, inputs, output and logs.

        A map also has one page of its items: those after the item number `items_after`.
        """
        query = [("items_after", str(items_after)), ("items_limit", str(items_limit))]
        query += [] if item is None else [("item", str(item))]
        path = _build_path(execution_id, f"/nodes/{quote_path_segment(node_id)}")
        return await self.transport.get(path, NodeDetail, query)

    async def history(self, execution_id: str) -> list[HistoryEvent]:
        """Returns all events of an execution, in order; raises NotFoundError."""
        history = await self.transport.get(_build_path(execution_id, "/history"), HistoryView)
        return [*history.items]

    async def follow(self, execution_id: str, *, after: int = 0) -> AsyncIterator[HistoryEvent]:
        """Yields the events of an execution as they happen, until it is final.

        Raises NotFoundError.

        `after` is the number of events to skip.
        """
        path = _build_path(execution_id, "/events")
        async for message in self.transport.stream(path, make_event_id(after) if after else None):
            if message.event == "end":
                return
            yield self.transport.decode(message.data, HistoryEvent)

    async def list_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Page[ExecutionSummary]:
        """Returns one page of executions, newest first, with 500 executions at most."""
        limited = msgspec.structs.replace(criteria, limit=min(PAGE_SIZE_MAX, criteria.limit))
        query = build_filter_query(limited)
        return await self.transport.get("/v1/executions", Page[ExecutionSummary], query)

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
    ) -> AsyncIterator[ExecutionSummary]:
        """Yields all executions that match every given filter, newest first.

        `text` is a part of the execution id, the workflow's name, a label's value or the error.
        """
        return search_executions(
            self,
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
    ) -> Mapping[ExecutionState, StateCount]:
        """Counts the executions in each state; stops counting a state at a maximum."""
        query = build_filter_query(criteria, with_page=False)
        return (await self.transport.get("/v1/executions/count", ExecutionCounts, query)).states

    async def find(self, text: str) -> ExecutionId:
        """Returns the execution id that equals the text, or the only id that begins with it."""
        check_execution_id(text)
        summaries = await self._look_up([("begins", text)])
        return choose_by_prefix(text, [summary.execution_id for summary in summaries][:2])

    async def summaries(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, ExecutionSummary]:
        """Returns the summaries of the executions that exist, by id."""
        summaries: dict[ExecutionId, ExecutionSummary] = {}
        for first in range(0, len(ids), IDS_PER_LOOKUP):
            page = await self._look_up([("id", id_) for id_ in ids[first : first + IDS_PER_LOOKUP]])
            summaries |= {summary.execution_id: summary for summary in page}
        return summaries

    async def _look_up(self, query: Query) -> Listing[ExecutionSummary]:
        return await self.transport.get("/v1/executions/lookup", Listing[ExecutionSummary], query)

    async def cancel(self, execution_id: str, *, reason: str = "", is_forced: bool = False) -> None:
        """Cancels an execution. Its clean-up nodes still run, unless `is_forced` is true."""
        body = {"reason": reason, "force": is_forced}
        await self.transport.post(_build_path(execution_id, "/cancel"), NO_VIEW, body)

    async def signal(
        self,
        execution_id: str,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Sends a signal to the node that waits for it; a repeated `signal_id` has no effect."""
        id_ = signal_id or self._make_key()
        body = {
            "name": name,
            "payload": msgspec.Raw(encode_payload(payload, where="payload")),
            "signal_id": id_,
        }
        path = _build_path(execution_id, "/signal")
        await self.transport.post(path, NO_VIEW, body, is_repeatable=True)

    async def rerun(
        self,
        execution_id: str,
        options: RerunSpec | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Starts a new execution that reuses the completed nodes of a final execution.

        The new execution has the same input, unless `input` is given.
        """
        body = {
            **build_rerun_body(options or RerunSpec()),
            "input": msgspec.Raw(encode_payload(input, where="input")),
        }
        path, key = _build_path(execution_id, "/rerun"), idempotency_key or self._make_key()
        return (await self.transport.post(path, AcceptedRequest, body, key=key)).execution_id

    async def store(self, workflow: WorkflowSource) -> StoredWorkflow:
        """Stores a workflow without running it.

        Content that is already stored keeps its version.
        """
        return await self.library.store(load_remote_workflow(workflow))

    async def delete_workflow(self, name: str) -> int:
        """Deletes all versions of a workflow, and returns the number of versions.

        Final executions of the workflow stay. Raises WrongStateError while one of its executions is
        not final.
        """
        return await self.library.delete(name)

    def workflows(self) -> AsyncIterator[StoredWorkflow]:
        """Yields the newest version of each workflow, by name."""
        query = [("limit", str(PAGE_SIZE))]
        return self.transport.iter_items("/v1/workflows", Page[StoredWorkflow], query)

    async def versions(self, name: str, *, limit: int = 50) -> list[StoredWorkflow]:
        """Lists the versions of a workflow, newest first."""
        return [*await self.library.versions(name, limit=limit)]

    async def document(self, name: str, version: int | None = None) -> dict[str, Json]:
        """Returns a workflow in the format of workflow files; by default the newest version."""
        return (await self.library.get(name, version)).document

    async def server(self) -> ServerInfo:
        """Returns the version of the server, and whether it is embedded or uses Redis."""
        return await self.transport.get("/v1/server", ServerInfo)

    async def ready(self) -> Readiness:
        """Returns whether the server is ready, and the problem of each part, such as the store."""
        request = ServerRequest(
            method="GET",
            path="/health/ready",
            is_repeatable=True,
            accepted_statuses=[HTTPStatus.SERVICE_UNAVAILABLE],
        )
        return await self.transport.send(request, Readiness)

    async def _create_execution(
        self,
        workflow: WorkflowOrName,
        input: Json,
        *,
        labels: Mapping[str, str] | None,
        priority: int | None,
        version: int | None,
        idempotency_key: str | None,
        is_held: bool = False,
    ) -> ExecutionId:
        request = await self._build_run_request(
            workflow,
            input,
            labels=labels,
            priority=priority,
            version=version,
            idempotency_key=idempotency_key,
            is_held=is_held,
        )
        return (await self.transport.send(request, AcceptedRequest)).execution_id

    async def _build_run_request(
        self,
        workflow: WorkflowOrName,
        input: Json,
        *,
        labels: Mapping[str, str] | None,
        priority: int | None,
        version: int | None,
        idempotency_key: str | None,
        is_held: bool = False,
        wait_s: float = 0.0,
    ) -> ServerRequest:
        """Stores the workflow unless it is a name; the request starts an execution.

        With `wait_s`, the server answers when the execution is final, or after this time.
        """
        name = workflow
        if not isinstance(name, str):
            name, version = await self._store_once(name)
        body = {
            "input": msgspec.Raw(encode_payload(input, where="input")),
            "labels": dict(labels or {}),
            "priority": priority,
            "version": version,
            **({"hold": True} if is_held else {}),
        }
        return ServerRequest(
            method="POST",
            path=f"/v1/workflows/{quote_path_segment(name)}/run",
            query=[("wait", f"{wait_s:.3f}")] if wait_s else (),
            body=msgspec.json.encode(body),
            key=idempotency_key or self._make_key(),
            long_poll_s=wait_s,
        )

    async def _wait_in_request(self, request: ServerRequest) -> ExecutionView | AcceptedRequest:
        """Returns the execution; or only its id, from a server of an earlier version."""
        response = await self.transport.exchange(request)
        if response.status_code == HTTPStatus.OK:
            return self.transport.decode_response(response, ExecutionView)
        return self.transport.decode_response(response, AcceptedRequest)

    async def _store_once(self, workflow: WorkflowSource) -> tuple[str, int]:
        """Stores a workflow, and returns its name and version.

        Calls with the same workflow send at most one request per second, because a batch submits it
        many times.
        """
        async with self._storing:
            known, now = self._stored.get(id(workflow)), self._clock.monotonic()
            if known is None or now >= known.until:
                stored = await self.store(workflow)
                until = self._clock.monotonic() + VERSION_KNOWN_S
                known = _KnownWorkflow(workflow, stored.name, stored.version, until)
                self._stored.pop(id(workflow), None)
                self._stored[id(workflow)] = known
                if len(self._stored) > STORED_WORKFLOWS_MAX:
                    del self._stored[next(iter(self._stored))]
            return known.name, known.version

    def _make_key(self) -> str:
        return f"{self._ids.nonce()}{self._ids.nonce()}"


def _build_path(execution_id: str, suffix: str = "") -> str:
    return f"/v1/executions/{quote_path_segment(execution_id)}{suffix}"
