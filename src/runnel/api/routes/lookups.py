"""Lookups for programs: the command line uses them when it works on this server."""

from typing import Annotated

from fastapi import Path, Query

from runnel import __version__
from runnel.api.requests import LIMIT_MAX, ExecutionIdParam
from runnel.api.resource_router import ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.client.definitions import build_workflow_view
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.errors import NotFoundError
from runnel.views.execution import ExecutionSummary
from runnel.views.operations import PartitionView, ServerInfo
from runnel.views.page import Listing
from runnel.views.token import Scope
from runnel.views.workflow import WorkflowDocument

routes = ResourceRouter("lookups")
ID_CHARS_MAX = 500
PREFIX_MATCHES_MAX = 2

DefinitionHashParam = Annotated[
    str,
    Path(
        description="The content hash of a workflow: `workflow_definition_id` of an execution",
        max_length=100,
        pattern="^[0-9A-Za-z]+$",
    ),
]


@routes.operation("GET /server", Scope.READ, "Get the version and the kind of this server")
async def read_server(app_state: AppStateDependency) -> ServerInfo:
    return ServerInfo(
        version=__version__, engine="redis" if app_state.settings.has_redis else "embedded"
    )


@routes.operation(
    "GET /executions/lookup",
    Scope.READ,
    "Get executions by id, leaving out unknown ids; or up to two by the beginning of an id",
)
async def look_up_executions(
    app_state: AppStateDependency,
    id: Annotated[list[str] | None, Query(max_length=LIMIT_MAX)] = None,
    begins: Annotated[str | None, Query(max_length=ID_CHARS_MAX)] = None,
) -> Listing[ExecutionSummary]:
    ids = [ExecutionId(text) for text in id or ()]
    if begins is not None:
        ids += await app_state.backend.archive.find_ids(begins, limit=PREFIX_MATCHES_MAX)
    summaries = await app_state.client.summaries(list(dict.fromkeys(ids)))
    return Listing(items=[*summaries.values()])


@routes.operation(
    "GET /executions/{execution_id}/partition",
    Scope.READ,
    "Get the partition of an execution and its owner",
)
async def read_partition_of_execution(
    execution_id: ExecutionIdParam, app_state: AppStateDependency
) -> PartitionView:
    return await app_state.operations.partition_of(execution_id)


@routes.operation(
    "GET /definitions/{workflow_definition_id}",
    Scope.READ,
    "Get the definition that an execution runs, as a workflow document",
    404,
)
async def read_definition(
    workflow_definition_id: DefinitionHashParam, app_state: AppStateDependency
) -> WorkflowDocument:
    hash_ = DefinitionHash(workflow_definition_id)
    definition = await app_state.backend.archive.get_definition(hash_)
    if definition is None:
        raise NotFoundError("definition", workflow_definition_id)
    return build_workflow_view(definition)
