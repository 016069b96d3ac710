"""Workflows: submit, run by name, list, read, draw."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from runnel.api.models import (
    Begun,
    Deleted,
    GraphAnswer,
    ListedWorkflow,
    RunRequest,
    StoredWorkflow,
    Submitted,
    Valid,
    WorkflowDocument,
    WorkflowPage,
)
from runnel.api.requests import (
    AfterParam,
    IdempotencyKeyHeader,
    LimitParam,
    StrictRoute,
    VersionParam,
    WorkflowNameParam,
    read_workflow,
)
from runnel.api.responses import BODY_STATUSES, WORKFLOW_REQUEST_BODY, describe_problems
from runnel.api.security.gate import parse_media_type
from runnel.api.security.guard import require_scope
from runnel.api.state import AppStateDependency
from runnel.authoring.documents.export import to_document
from runnel.core.graph import Graph
from runnel.core.validation import build_graph
from runnel.core.workflow import decode_workflow
from runnel.errors import PayloadError
from runnel.ports.archive import Definition
from runnel.ports.store import ExecutionHeader
from runnel.triggers.schedule_checks import find_label_problems
from runnel.views.execution import format_time
from runnel.views.token import Scope
from runnel.views.workflow import build_graph_document, render_mermaid

router = APIRouter(tags=["workflows"], route_class=StrictRoute)
_MERMAID_CONTENT = {"text/plain": {"schema": {"type": "string"}}}
WithDocumentsParam = Annotated[bool, Query(description="With what could be written in a file")]
READ, RUN = [require_scope(Scope.READ)], [require_scope(Scope.RUN)]


@router.post(
    "/workflow",
    operation_id="submit_workflow",
    summary="Store a workflow and an execution of it that waits to be triggered",
    status_code=201,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES),
    openapi_extra=WORKFLOW_REQUEST_BODY,
)
async def submit(
    request: Request, app_state: AppStateDependency, key: IdempotencyKeyHeader = None
) -> Submitted:
    workflow = await read_workflow(
        app_state, await request.body(), parse_media_type(request.headers)
    )
    header = await app_state.client.create_execution(workflow, is_held=True, idempotency_key=key)
    return Submitted(
        workflow_definition_id=header.definition,
        workflow=header.workflow,
        version=header.version,
        execution_id=header.execution_id,
        status=header.state,
    )


@router.post(
    "/workflows",
    operation_id="store_workflow",
    summary="Store a workflow, without an execution",
    status_code=201,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES),
    openapi_extra=WORKFLOW_REQUEST_BODY,
)
async def store(request: Request, app_state: AppStateDependency) -> StoredWorkflow:
    workflow = await read_workflow(
        app_state, await request.body(), parse_media_type(request.headers)
    )
    stored = await app_state.client.library.store(workflow)
    return _build_stored_workflow(stored.name, stored.version, stored.graph)


@router.post(
    "/workflows/validate",
    operation_id="validate_workflow",
    summary="Judge a workflow, and store nothing",
    dependencies=READ,
    responses=describe_problems(*BODY_STATUSES),
    openapi_extra=WORKFLOW_REQUEST_BODY,
)
async def validate(request: Request, app_state: AppStateDependency) -> Valid:
    workflow = await read_workflow(
        app_state, await request.body(), parse_media_type(request.headers)
    )
    graph = build_graph(workflow)
    return Valid(name=workflow.name, nodes=len(graph), layers=len(graph.layers()))


@router.get(
    "/workflows",
    operation_id="list_workflows",
    summary="The newest version of each workflow, by name",
    dependencies=READ,
    responses=describe_problems(422),
)
async def list_workflows(
    app_state: AppStateDependency,
    *,
    limit: LimitParam = 50,
    after: AfterParam = None,
    documents: WithDocumentsParam = False,
) -> WorkflowPage:
    found = await app_state.client.library.list(after=after or "", limit=limit)
    return WorkflowPage(
        items=[_build_listed_workflow(each, with_document=documents) for each in found],
        next=found[-1].name if len(found) == limit else None,
    )


@router.post(
    "/workflows/{name:path}/run",
    operation_id="run_workflow",
    summary="Begin an execution of a stored workflow",
    status_code=201,
    dependencies=RUN,
    responses=describe_problems(*BODY_STATUSES, 404, 409),
)
async def run(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    wanted: RunRequest | None = None,
    key: IdempotencyKeyHeader = None,
) -> Begun:
    wanted = wanted or RunRequest()
    for problem in find_label_problems(wanted.labels):
        raise PayloadError(problem)
    stored = await app_state.client.library.find(name, wanted.version)
    await app_state.check_capacity()
    header = await app_state.client.create_execution(
        stored.graph.workflow,
        wanted.input,
        labels=wanted.labels,
        idempotency_key=key,
        version=stored.version,
    )
    return build_started_answer(header)


def build_started_answer(header: ExecutionHeader) -> Begun:
    return Begun(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        status=header.state,
        created_at=format_time(header.created_at),
    )


@router.get(
    "/workflows/{name:path}/versions",
    operation_id="list_versions",
    summary="The versions of a workflow, newest first",
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def versions(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    *,
    limit: LimitParam = 50,
    documents: WithDocumentsParam = False,
) -> WorkflowPage:
    found = await app_state.client.library.versions(name, limit=limit)
    items = [_build_listed_workflow(each, with_document=documents) for each in found]
    return WorkflowPage(items=items, next=None)


@router.get(
    "/workflows/{name:path}/graph",
    operation_id="draw_workflow",
    summary="The graph of a workflow: nodes, edges and layers, or Mermaid text",
    response_model=GraphAnswer,
    dependencies=READ,
    responses={**describe_problems(404, 422), 200: {"content": _MERMAID_CONTENT}},
)
async def draw(
    name: WorkflowNameParam,
    app_state: AppStateDependency,
    version: VersionParam = None,
    format: Annotated[Literal["json", "mermaid"], Query()] = "json",
) -> Response:
    stored = await app_state.client.library.find(name, version)
    if format == "mermaid":
        return PlainTextResponse(render_mermaid(stored.graph))
    return JSONResponse(build_graph_document(stored.graph))


@router.get(
    "/workflows/{name:path}",
    operation_id="read_workflow",
    summary="A workflow as it could be written in a file",
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def read(
    name: WorkflowNameParam, app_state: AppStateDependency, version: VersionParam = None
) -> WorkflowDocument:
    stored = await app_state.client.library.find(name, version)
    about = _build_stored_workflow(stored.name, stored.version, stored.graph)
    return WorkflowDocument(**about.model_dump(), document=to_document(stored.graph.workflow))


@router.delete(
    "/workflows/{name:path}",
    operation_id="delete_workflow",
    summary="Delete all versions of a workflow; executions that have ended stay readable",
    dependencies=[require_scope(Scope.OPERATE)],
    responses=describe_problems(404, 409, 422),
)
async def delete(name: WorkflowNameParam, app_state: AppStateDependency) -> Deleted:
    return Deleted(versions=await app_state.client.library.delete(name))


def _build_stored_workflow(name: str, version: int, graph: Graph) -> StoredWorkflow:
    return StoredWorkflow(
        name=name, version=version, workflow_definition_id=graph.hash, nodes=len(graph)
    )


def _build_listed_workflow(definition: Definition, *, with_document: bool) -> ListedWorkflow:
    workflow = decode_workflow(definition.document)
    return ListedWorkflow(
        name=definition.name,
        version=definition.version,
        workflow_definition_id=definition.hash,
        nodes=len(workflow.nodes),
        document=to_document(workflow) if with_document else None,
    )
