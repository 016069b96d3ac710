"""A Runnel server from outside: its workflows and executions, over HTTP."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec

from runnel.authoring.builder import STEP_HANDLER, WorkflowDAG
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.documents import load_file
from runnel.authoring.documents.export import to_document
from runnel.authoring.payloads import encode_payload
from runnel.authoring.python_files import load_workflow, python_file
from runnel.client.http_resources import (
    About,
    DeadLetters,
    Many,
    Operations,
    Ready,
    RemoteSchedules,
    RemoteWebhooks,
    StoredWorkflow,
    detail_of,
    event_of,
    history_of,
    page_of,
    query_of,
    read,
    states_of,
    view_of,
    wish_of,
)
from runnel.client.nodes import ITEMS, NodeDetail
from runnel.client.reruns import Rerun
from runnel.client.transport import Call, Transport, server_address, step
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.values import Json
from runnel.core.wording import shown
from runnel.core.workflow import Workflow
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import InputError, WorkflowFailedError
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter, HeaderPage, StateCount
from runnel.ports.store import Header
from runnel.views.execution import ExecutionView, HistoryView

# What can be run on a server: a name that is known there, or a workflow in any of its forms.

AnyWorkflow: TypeAlias = Workflow | TracedWorkflow[..., Any] | WorkflowDAG | Path
Runnable: TypeAlias = AnyWorkflow | str


def to_model(source: AnyWorkflow) -> Workflow:
    """Raises InvalidWorkflowError; a Python file is imported.

    Raises InputError for steps that are functions in this process: no server has them.
    """
    workflow = _loaded(source)
    for node in workflow.nodes:
        if node.handler == STEP_HANDLER:
            raise InputError(
                f"workflow {shown(workflow.name)}: step {shown(node.id)} is a function of this "
                "process, which a server can't call; use @workflow and @task, or add_node"
            )
    return workflow


def document_of(workflow: Workflow) -> dict[str, Json]:
    """With each node's whole retry policy: what is left out would be that of the server."""
    document = to_document(workflow)
    for node, written in zip(workflow.nodes, document["nodes"], strict=True):
        written["retry"] = msgspec.structs.asdict(node.retry)
        if node.child is not None:
            written["config"]["definition"] = document_of(node.child)
    return document


def _loaded(source: AnyWorkflow) -> Workflow:
    if isinstance(source, Workflow):
        return source
    if isinstance(source, TracedWorkflow | WorkflowDAG):
        return source.to_workflow()
    if isinstance(source, Path):
        file = python_file(str(source))
        return load_file(source) if file is None else load_workflow(file).to_workflow()
    raise InputError(
        f"expected the name of a workflow, a Path of a file, a @workflow or a WorkflowDAG, "
        f"got {shown(source)}"
    )


# `runnel.Client`: what a program can ask of a Runnel server.

# A server holds a request for a minute at most.
POLL_S = 30.0
PAGE = 200
RETRIES = 4


class Client:
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
        retries: int = RETRIES,
    ) -> None:
        self._clock, self._ids = RealClock(), RealIds()
        self.transport = Transport(
            server_address(url, token),
            self._clock,
            self._ids,
            timeout_s=timeout_s,
            retries=retries,
        )
        self.schedules = RemoteSchedules(self.transport)
        self.webhooks = RemoteWebhooks(self.transport)
        self.dead_letters = DeadLetters(self.transport)
        self.operations = Operations(self.transport)
        self.many = Many(self.transport)

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
        workflow: Runnable,
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
            stored = await self.store(name)
            name, version = stored.name, stored.version
        body = {
            "input": msgspec.Raw(encode_payload(input, where="input")),
            "labels": dict(labels or {}),
            "version": version,
        }
        key = idempotency_key or self._key()
        begun = await self.transport.post(f"/v1/workflows/{step(name)}/run", body, key=key)
        return ExecutionId(begun["execution_id"])

    async def run(
        self,
        workflow: Runnable,
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
        self, workflow: AnyWorkflow, *, idempotency_key: str | None = None
    ) -> ExecutionId:
        """Stores an execution that starts when it is triggered."""
        document = document_of(to_model(workflow))
        key = idempotency_key or self._key()
        held = await self.transport.post("/v1/workflow", document, key=key)
        return ExecutionId(held["execution_id"])

    async def trigger(
        self, execution_id: str, input: Json = None, *, idempotency_key: str | None = None
    ) -> None:
        """Starts one that is held; raises WrongStateError when it was started before.

        Called again with the same key and input, nothing happens.
        """
        body = {"input_params": msgspec.Raw(encode_payload(input, where="input"))}
        key = idempotency_key or self._key()
        await self.transport.post(f"/v1/workflow/trigger/{step(execution_id)}", body, key=key)

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> ExecutionView:
        """The execution once it is final; raises TimeoutError when that takes longer."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            left_s = POLL_S if deadline is None else deadline - self._clock.monotonic()
            poll_s = max(0.0, min(POLL_S, left_s))
            found = view_of(
                await self.transport.get(
                    f"/v1/executions/{step(execution_id)}/wait",
                    [("timeout", f"{poll_s:.3f}")],
                    waits_s=poll_s,
                )
            )
            if found.status in EXECUTION_FINAL:
                return found
            if left_s <= 0:
                raise TimeoutError(f"execution {execution_id} is not final after {timeout_s} s")

    async def get(self, execution_id: str) -> ExecutionView:
        """With its nodes and their outputs."""
        return view_of(await self.transport.get(f"/v1/executions/{step(execution_id)}"))

    async def node(
        self,
        execution_id: str,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS,
    ) -> NodeDetail:
        """One node: its attempts, config, inputs, output and log lines; or an item of a map.

        Items come in pages, behind `items_after`.
        """
        query = [("items_after", str(items_after)), ("items_limit", str(items_limit))]
        query += [] if item is None else [("item", str(item))]
        path = f"/v1/executions/{step(execution_id)}/nodes/{step(node_id)}"
        return detail_of(await self.transport.get(path, query))

    async def history(self, execution_id: str) -> list[HistoryView]:
        """Everything that has happened in it, in order."""
        path = f"/v1/executions/{step(execution_id)}/history"
        return history_of(await self.transport.get(path))

    async def follow(self, execution_id: str) -> AsyncIterator[HistoryView]:
        """Everything that happens in it, from its beginning, as it happens; until it is final."""
        async for each in self.transport.stream(f"/v1/executions/{step(execution_id)}/events"):
            if each.event == "end":
                return
            yield event_of(each.data)

    async def list_executions(self, wanted: ExecutionFilter = ALL_EXECUTIONS) -> HeaderPage:
        """One page, newest first."""
        return page_of(await self.transport.get("/v1/executions", query_of(wanted)))

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
    ) -> AsyncIterator[Header]:
        """All that are so, newest first, page by page.

        `text` is part of an id, a workflow's name, a label's value or an error.
        """
        wanted = ExecutionFilter(
            states=states_of(states),
            workflow=workflow,
            labels=dict(labels or {}),
            text=text,
            created_from=-inf if created_from is None else created_from.timestamp(),
            created_before=inf if created_before is None else created_before.timestamp(),
            with_children=with_children,
            limit=PAGE,
        )
        while True:
            page = await self.list_executions(wanted)
            for header in page:
                yield header
            if page.next is None:
                return
            wanted = msgspec.structs.replace(wanted, after=page.next)

    async def count_executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        """How many there are in each state, or how many at least."""
        query = query_of(wanted, with_page=False)
        found = await self.transport.get("/v1/executions/count", query)
        return read(found["states"], dict[ExecutionState, StateCount])

    async def cancel(self, execution_id: str, *, reason: str = "", is_forced: bool = False) -> None:
        """Clean-up nodes still run, unless it `is_forced`."""
        path = f"/v1/executions/{step(execution_id)}/cancel"
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
        id_ = signal_id or self._key()
        body = {
            "name": name,
            "payload": msgspec.Raw(encode_payload(payload, where="payload")),
            "signal_id": id_,
        }
        await self.transport.send(
            Call(
                method="POST",
                path=f"/v1/executions/{step(execution_id)}/signal",
                body=msgspec.json.encode(body),
                is_repeatable=True,
            )
        )

    async def rerun(
        self,
        execution_id: str,
        wanted: Rerun | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Begins a new execution that takes over what a finished one had completed.

        With the input of that one, unless another is given.
        """
        body = {
            **wish_of(wanted or Rerun()),
            "input": msgspec.Raw(encode_payload(input, where="input")),
        }
        path = f"/v1/executions/{step(execution_id)}/rerun"
        begun = await self.transport.post(path, body, key=idempotency_key or self._key())
        return ExecutionId(begun["execution_id"])

    async def store(self, workflow: AnyWorkflow) -> StoredWorkflow:
        """Under the version that its content has, or else the next; nothing is run."""
        document = document_of(to_model(workflow))
        call = Call(
            method="POST",
            path="/v1/workflows",
            body=encode_payload(document, where="workflow"),
            is_repeatable=True,
        )
        return read(await self.transport.send(call), StoredWorkflow)

    async def delete_workflow(self, name: str) -> int:
        """How many versions it had; executions that have ended stay readable.

        Raises WrongStateError while executions of it are not final.
        """
        call = Call(method="DELETE", path=f"/v1/workflows/{step(name)}")
        return read((await self.transport.send(call))["versions"], int)

    async def workflows(self) -> AsyncIterator[StoredWorkflow]:
        """The newest version of each, by name."""
        after: str | None = None
        while True:
            query = [("limit", str(PAGE))] + ([] if after is None else [("after", after)])
            page = await self.transport.get("/v1/workflows", query)
            for each in read(page["items"], list[StoredWorkflow]):
                yield each
            after = page["next"]
            if after is None:
                return

    async def versions(self, name: str, *, limit: int = 50) -> list[StoredWorkflow]:
        """Newest first."""
        path = f"/v1/workflows/{step(name)}/versions"
        page = await self.transport.get(path, [("limit", str(limit))])
        return read(page["items"], list[StoredWorkflow])

    async def document(self, name: str, version: int | None = None) -> dict[str, Json]:
        """A workflow as it could be written in a file; by default the newest version."""
        query = [] if version is None else [("version", str(version))]
        found = await self.transport.get(f"/v1/workflows/{step(name)}", query)
        return read(found["document"], dict[str, Json])

    async def server(self) -> About:
        """What the server is."""
        return read(await self.transport.get("/v1/server"), About)

    async def ready(self) -> Ready:
        """Whether the server can be given work, and if not, which part of it can't be reached."""
        call = Call(
            method="GET",
            path="/health/ready",
            is_repeatable=True,
            answers=[HTTPStatus.SERVICE_UNAVAILABLE],
        )
        return read(await self.transport.send(call), Ready)

    def _key(self) -> str:
        return f"{self._ids.nonce()}{self._ids.nonce()}"
