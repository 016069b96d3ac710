"""Routes of workflows: submit, run by name, list, read, draw, delete."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse

from runnel.api.requests import (
    WAIT_S_MAX,
    ActivateRequest,
    AfterParam,
    BatchRequest,
    IdempotencyKeyHeader,
    LimitParam,
    RunRequest,
    VersionParam,
    WorkflowNameParam,
)
from runnel.api.requests import read_workflow as read_workflow_body
from runnel.api.resource_router import BODY_STATUSES, OtherAnswer, ResourceRouter
from runnel.api.responses import WORKFLOW_REQUEST_BODY, make_view_response
from runnel.api.security.access_control import Caller
from runnel.api.security.middleware import parse_media_type
from runnel.api.state import AppState, AppStateDependency
from runnel.client.definitions import build_stored_workflow, build_workflow_view
from runnel.core.validation import build_graph
from runnel.core.workflow import Workflow
from runnel.errors import PayloadError
from runnel.ports.archive import Definition
from runnel.ports.store import ExecutionHeader
from runnel.triggers.trigger import find_label_problems
from runnel.views import Timestamp
from runnel.views.execution import ExecutionView, HeldExecution, NewBatch, NewExecution
from runnel.views.page import Page
from runnel.views.token import Scope
from runnel.views.workflow import (
    ActiveVersion,
    DeletedWorkflow,
    GraphView,
    ListedWorkflow,
    StoredWorkflow,
    ValidWorkflow,
    WorkflowDocument,
    build_graph_view,
    render_mermaid,
)

routes = ResourceRouter("workflows")
_MERMAID_CONTENT = {"text/plain": {"schema": {"type": "string"}}}
WithDocumentsParam = Annotated[
    bool, Query(description="Include each workflow as a document, as a file would have it")
]


@routes.operation(
    "POST /workflow",
    Scope.RUN,
    "Store a workflow, and create an execution that waits for a trigger",
    *BODY_STATUSES,
    status=201,
    request_body=WORKFLOW_REQUEST_BODY,
)
async def submit_workflow(
    request: Request, app_state: AppStateDependency, key: IdempotencyKeyHeader = None
) -> HeldExecution:
    workflow = await _read_body(request, app_state)
    header = await app_state.client.create_execution(workflow, is_held=True, idempotency_key=key)
    return HeldExecution(
        workflow_definition_id=header.definition,
        workflow=header.workflow,
        version=header.version,
        execution_id=header.execution_id,
        status=header.state,
    )


@routes.operation(
    "POST /workflows",
    Scope.RUN,
    "Store a workflow without running it",
    *BODY_STATUSES,
    status=201,
    request_body=WORKFLOW_REQUEST_BODY,
)
async def store_workflow(request: Request, app_state: AppStateDependency) -> StoredWorkflow:
    return await app_state.client.library.store(await _read_body(request, app_state))


@routes.operation(
    "POST /workflows/validate",
    Scope.READ,
    "Validate a workflow without storing it",
    *BODY_STATUSES,
    request_body=WORKFLOW_REQUEST_BODY,
)
async def validate_workflow(request: Request, app_state: AppStateDependency) -> ValidWorkflow:
    workflow = await _read_body(request, app_state)
    graph = build_graph(workflow)
    return ValidWorkflow(name=workflow.name, nodes=len(graph), layers=len(graph.layers()))


@routes.operation("GET /workflows", Scope.READ, "List the newest version of each workflow, by name")
async def list_workflows(
    app_state: AppStateDependency,
    *,
    limit: LimitParam = 50,
    after: AfterParam = None,
    documents: WithDocumentsParam = False,
) -> Page[ListedWorkflow]:
    definitions = await app_state.backend.archive.list_workflows(after=after or "", limit=limit)
    active = await app_state.client.library.list_active_versions(after=after or "", limit=limit)
    return Page(
        items=_build_listed_workflows(definitions, active, with_documents=documents),
        next=definitions[-1].name if len(definitions) == limit else None,
    )


@routes.operation(
    "POST /workflows/{name:path}/run",
    Scope.RUN,
    "Start an execution of a stored workflow; with `wait`, also get its result",
    404,
    409,
    status=201,
    other_answers={200: OtherAnswer("The execution, if the request waits", ExecutionView)},
)
async def run_workflow(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    body: RunRequest | None = None,
    key: IdempotencyKeyHeader = None,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=WAIT_S_MAX,
            description="Seconds to wait. The answer is then the execution once it is final, or as "
            "it is after this time",
        ),
    ] = 0.0,
) -> NewExecution | Response:
    body = body or RunRequest()
    for problem in find_label_problems(body.labels):
        raise PayloadError(problem)
    stored = await app_state.client.library.find(name, body.version)
    await app_state.check_capacity()
    header = await app_state.client.create_execution(
        stored.graph.workflow,
        body.input,
        labels=body.labels,
        priority=body.priority,
        idempotency_key=key,
        version=stored.version,
        is_held=body.hold,
    )
    if not wait:
        return build_new_execution(header)
    await app_state.wait_until_final(header.execution_id, wait)
    return make_view_response(await app_state.client.get(header.execution_id))


@routes.operation(
    "POST /workflows/{name:path}/batch",
    Scope.RUN,
    "Start an execution of a stored workflow for each of up to 1,000 inputs, or none at all",
    404,
    409,
    status=201,
)
async def run_batch(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    body: BatchRequest,
    key: IdempotencyKeyHeader = None,
) -> NewBatch:
    for problem in find_label_problems(body.labels):
        raise PayloadError(problem)
    keys = body.idempotency_keys
    if keys is None and key is not None:
        keys = [f"{key}:{index}" for index in range(len(body.inputs))]
    stored = await app_state.client.library.find(name, body.version)
    await app_state.check_capacity()
    headers = await app_state.client.create_executions(
        stored.graph.workflow,
        body.inputs,
        labels=body.labels,
        priority=body.priority,
        idempotency_keys=keys,
        version=stored.version,
    )
    return NewBatch(
        workflow=stored.name,
        version=stored.version,
        execution_ids=[header.execution_id for header in headers],
    )


def build_new_execution(header: ExecutionHeader) -> NewExecution:
    return NewExecution(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        status=header.state,
        created_at=Timestamp(header.created_at),
    )


@routes.operation(
    "GET /workflows/{name:path}/versions",
    Scope.READ,
    "List the versions of a workflow, newest first",
    404,
)
async def list_versions(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    *,
    limit: LimitParam = 50,
    documents: WithDocumentsParam = False,
) -> Page[ListedWorkflow]:
    library = app_state.client.library
    definitions = await library.list_definitions(name, limit=limit)
    active = {name: await library.find_active_version(name)}
    return Page(
        items=_build_listed_workflows(definitions, active, with_documents=documents), next=None
    )


@routes.operation(
    "GET /workflows/{name:path}/active",
    Scope.READ,
    "Get the version that runs by name, and who activated it",
    404,
)
async def read_active_version(
    name: WorkflowNameParam, app_state: AppStateDependency
) -> ActiveVersion:
    return await app_state.client.library.active(name)


@routes.operation(
    "POST /workflows/{name:path}/activate",
    Scope.OPERATE,
    "Set the version that runs by name: for runs, webhooks and schedules without a version",
    404,
    409,
)
async def activate_version(
    name: WorkflowNameParam,
    request: Request,
    body: ActivateRequest,
    app_state: AppStateDependency,
) -> ActiveVersion:
    caller: Caller = request.state.caller
    author = body.author if caller.token_id is None else caller.name
    return await app_state.client.library.activate(name, body.version, author=author or caller.name)


@routes.operation(
    "GET /workflows/{name:path}/graph",
    Scope.READ,
    "Get the graph of a workflow: nodes, edges and layers, or Mermaid text",
    404,
    other_answers={200: OtherAnswer(view=GraphView, content=_MERMAID_CONTENT)},
)
async def draw_workflow(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    version: VersionParam = None,
    format: Annotated[Literal["json", "mermaid"], Query()] = "json",
) -> GraphView | Response:
    stored = await app_state.client.library.find(name, version)
    if format == "mermaid":
        return PlainTextResponse(render_mermaid(stored.graph))
    return build_graph_view(stored.graph)


@routes.operation(
    "GET /workflows/{name:path}", Scope.READ, "Get a workflow as a document, as a file has it", 404
)
async def read_workflow(
    name: WorkflowNameParam, app_state: AppStateDependency, version: VersionParam = None
) -> WorkflowDocument:
    return await app_state.client.library.get(name, version)


@routes.operation(
    "DELETE /workflows/{name:path}",
    Scope.OPERATE,
    "Delete all versions of a workflow; finished executions stay readable",
    404,
    409,
)
async def delete_workflow(
    name: WorkflowNameParam, app_state: AppStateDependency
) -> DeletedWorkflow:
    return DeletedWorkflow(versions=await app_state.client.library.delete(name))


async def _read_body(request: Request, app_state: AppState) -> Workflow:
    return await read_workflow_body(
        app_state, await request.body(), parse_media_type(request.headers)
    )


def _build_listed_workflows(
    definitions: Sequence[Definition],
    active: Mapping[str, int | None],
    *,
    with_documents: bool,
) -> list[ListedWorkflow]:
    build = build_workflow_view if with_documents else build_stored_workflow
    return [
        ListedWorkflow(
            **msgspec.structs.asdict(build(item)) | {"active_version": active.get(item.name)}
        )
        for item in definitions
    ]
