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
    After,
    IdempotencyKey,
    Limit,
    NamePath,
    StrictRoute,
    Version,
    read_workflow,
)
from runnel.api.responses import BODY, DOCUMENT_BODY, problems
from runnel.api.security.gate import media_type
from runnel.api.security.guard import needs
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite
from runnel.authoring.documents.export import to_document
from runnel.core.graph import Graph
from runnel.core.validation import build_graph
from runnel.core.workflow import decode_workflow
from runnel.errors import PayloadError
from runnel.ports.archive import Definition
from runnel.ports.store import Header
from runnel.triggers.schedule_checks import label_problems
from runnel.views.execution import moment
from runnel.views.workflow import graph_document, mermaid

router = APIRouter(tags=["workflows"], route_class=StrictRoute)
_MERMAID = {"text/plain": {"schema": {"type": "string"}}}
WithDocuments = Annotated[bool, Query(description="With what could be written in a file")]
READ, RUN = [needs(Scope.READ)], [needs(Scope.RUN)]


@router.post(
    "/workflow",
    operation_id="submit_workflow",
    summary="Store a workflow and an execution of it that waits to be triggered",
    status_code=201,
    dependencies=RUN,
    responses=problems(*BODY),
    openapi_extra=DOCUMENT_BODY,
)
async def submit(request: Request, site: OfSite, key: IdempotencyKey = None) -> Submitted:
    workflow = await read_workflow(site, await request.body(), media_type(request.headers))
    header = await site.client.begin(workflow, is_held=True, idempotency_key=key)
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
    responses=problems(*BODY),
    openapi_extra=DOCUMENT_BODY,
)
async def store(request: Request, site: OfSite) -> StoredWorkflow:
    workflow = await read_workflow(site, await request.body(), media_type(request.headers))
    stored = await site.client.library.store(workflow)
    return _stored(stored.name, stored.version, stored.graph)


@router.post(
    "/workflows/validate",
    operation_id="validate_workflow",
    summary="Judge a workflow, and store nothing",
    dependencies=READ,
    responses=problems(*BODY),
    openapi_extra=DOCUMENT_BODY,
)
async def validate(request: Request, site: OfSite) -> Valid:
    workflow = await read_workflow(site, await request.body(), media_type(request.headers))
    graph = build_graph(workflow)
    return Valid(name=workflow.name, nodes=len(graph), layers=len(graph.layers()))


@router.get(
    "/workflows",
    operation_id="list_workflows",
    summary="The newest version of each workflow, by name",
    dependencies=READ,
    responses=problems(422),
)
async def list_workflows(
    site: OfSite, *, limit: Limit = 50, after: After = None, documents: WithDocuments = False
) -> WorkflowPage:
    found = await site.client.library.list(after=after or "", limit=limit)
    return WorkflowPage(
        items=[_of_definition(each, with_document=documents) for each in found],
        next=found[-1].name if len(found) == limit else None,
    )


@router.post(
    "/workflows/{name:path}/run",
    operation_id="run_workflow",
    summary="Begin an execution of a stored workflow",
    status_code=201,
    dependencies=RUN,
    responses=problems(*BODY, 404, 409),
)
async def run(
    name: NamePath, site: OfSite, wanted: RunRequest | None = None, key: IdempotencyKey = None
) -> Begun:
    wanted = wanted or RunRequest()
    for problem in label_problems(wanted.labels):
        raise PayloadError(problem)
    stored = await site.client.library.find(name, wanted.version)
    await site.check_room()
    header = await site.client.begin(
        stored.graph.workflow,
        wanted.input,
        labels=wanted.labels,
        idempotency_key=key,
        version=stored.version,
    )
    return begun(header)


def begun(header: Header) -> Begun:
    return Begun(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        status=header.state,
        created_at=moment(header.created_at),
    )


@router.get(
    "/workflows/{name:path}/versions",
    operation_id="list_versions",
    summary="The versions of a workflow, newest first",
    dependencies=READ,
    responses=problems(404, 422),
)
async def versions(
    name: NamePath, site: OfSite, *, limit: Limit = 50, documents: WithDocuments = False
) -> WorkflowPage:
    found = await site.client.library.versions(name, limit=limit)
    items = [_of_definition(each, with_document=documents) for each in found]
    return WorkflowPage(items=items, next=None)


@router.get(
    "/workflows/{name:path}/graph",
    operation_id="draw_workflow",
    summary="The graph of a workflow: nodes, edges and layers, or Mermaid text",
    response_model=GraphAnswer,
    dependencies=READ,
    responses={**problems(404, 422), 200: {"content": _MERMAID}},
)
async def draw(
    name: NamePath,
    site: OfSite,
    version: Version = None,
    format: Annotated[Literal["json", "mermaid"], Query()] = "json",
) -> Response:
    stored = await site.client.library.find(name, version)
    if format == "mermaid":
        return PlainTextResponse(mermaid(stored.graph))
    return JSONResponse(graph_document(stored.graph))


@router.get(
    "/workflows/{name:path}",
    operation_id="read_workflow",
    summary="A workflow as it could be written in a file",
    dependencies=READ,
    responses=problems(404, 422),
)
async def read(name: NamePath, site: OfSite, version: Version = None) -> WorkflowDocument:
    stored = await site.client.library.find(name, version)
    about = _stored(stored.name, stored.version, stored.graph)
    return WorkflowDocument(**about.model_dump(), document=to_document(stored.graph.workflow))


@router.delete(
    "/workflows/{name:path}",
    operation_id="delete_workflow",
    summary="Delete all versions of a workflow; executions that have ended stay readable",
    dependencies=[needs(Scope.OPERATE)],
    responses=problems(404, 409, 422),
)
async def delete(name: NamePath, site: OfSite) -> Deleted:
    return Deleted(versions=await site.client.library.delete(name))


def _stored(name: str, version: int, graph: Graph) -> StoredWorkflow:
    return StoredWorkflow(
        name=name, version=version, workflow_definition_id=graph.hash, nodes=len(graph)
    )


def _of_definition(found: Definition, *, with_document: bool) -> ListedWorkflow:
    workflow = decode_workflow(found.document)
    return ListedWorkflow(
        name=found.name,
        version=found.version,
        workflow_definition_id=found.hash,
        nodes=len(workflow.nodes),
        document=to_document(workflow) if with_document else None,
    )
