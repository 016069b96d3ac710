"""What programs look up rather than people: the command line, when it works on this server."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query

from runnel import __version__
from runnel.api.models import FoundList, PartitionAnswer, ServerAnswer, WorkflowDocument
from runnel.api.requests import LIMIT_MAX, ExecutionIdParam, StrictRoute
from runnel.api.responses import build_listed_execution, describe_problems
from runnel.api.security.guard import require_scope
from runnel.api.security.tokens import Scope
from runnel.api.state import AppStateDependency
from runnel.authoring.documents.export import to_document
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.values import Json
from runnel.core.workflow import decode_workflow
from runnel.errors import NotFoundError

router = APIRouter(tags=["lookups"], route_class=StrictRoute)
READ = [require_scope(Scope.READ)]
ID_CHARS_MAX = 500
PREFIX_MATCHES_MAX = 2

DefinitionHashParam = Annotated[
    str,
    Path(
        description="The hash of a workflow's content, as executions name it",
        max_length=100,
        pattern="^[0-9A-Za-z]+$",
    ),
]


@router.get(
    "/server",
    operation_id="read_server",
    summary="What this server is",
    dependencies=READ,
    responses=describe_problems(),
)
async def server(app_state: AppStateDependency) -> ServerAnswer:
    return ServerAnswer(
        version=__version__, engine="redis" if app_state.settings.has_redis else "embedded"
    )


@router.get(
    "/executions/lookup",
    operation_id="look_up_executions",
    summary="Executions by their ids, those that there are; or two of those that begin so",
    response_model=FoundList,
    dependencies=READ,
    responses=describe_problems(422),
)
async def look_up(
    app_state: AppStateDependency,
    id: Annotated[list[str] | None, Query(max_length=LIMIT_MAX)] = None,
    begins: Annotated[str | None, Query(max_length=ID_CHARS_MAX)] = None,
) -> dict[str, Json]:
    archive = app_state.backend.archive
    wanted = [ExecutionId(each) for each in id or ()]
    if begins is not None:
        wanted += await archive.find_ids(begins, limit=PREFIX_MATCHES_MAX)
    found = await archive.get_headers(list(dict.fromkeys(wanted)))
    return {"items": [build_listed_execution(each) for each in found.values()]}


@router.get(
    "/executions/{execution_id}/partition",
    operation_id="read_partition_of_execution",
    summary="The partition that an execution is decided in, and who decides for it",
    response_model=PartitionAnswer,
    dependencies=READ,
    responses=describe_problems(422),
)
async def partition(
    execution_id: ExecutionIdParam, app_state: AppStateDependency
) -> dict[str, Json]:
    number = await app_state.backend.store.route(ExecutionId(execution_id))
    view: dict[str, Json] = msgspec.to_builtins(
        await app_state.partitions.inspect_partition(number)
    )
    return view


@router.get(
    "/definitions/{workflow_definition_id}",
    operation_id="read_definition",
    summary="The content that an execution runs, as it could be written in a file",
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def definition(
    workflow_definition_id: DefinitionHashParam, app_state: AppStateDependency
) -> WorkflowDocument:
    found = await app_state.backend.archive.get_definition(DefinitionHash(workflow_definition_id))
    if found is None:
        raise NotFoundError("definition", workflow_definition_id)
    workflow = decode_workflow(found.document)
    return WorkflowDocument(
        name=found.name,
        version=found.version,
        workflow_definition_id=found.hash,
        nodes=len(workflow.nodes),
        document=to_document(workflow),
    )
