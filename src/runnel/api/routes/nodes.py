"""One node of an execution."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from runnel.api.answers import problems
from runnel.api.bodies import StrictRoute
from runnel.api.models.nodes import NodeDetailAnswer
from runnel.api.parameters import LIMIT_MAX, ExecutionIdPath
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.node_details import ITEMS, detail_document

router = APIRouter(tags=["executions"], route_class=StrictRoute)
PLACE_MAX = 2**31 - 1


@router.get(
    "/executions/{execution_id}/nodes/{node_id:path}",
    operation_id="read_node",
    summary="A node: its attempts, config, inputs, output, error and logs; items of a map in pages",
    response_model=NodeDetailAnswer,
    dependencies=[needs(Scope.READ)],
    responses=problems(404, 422),
)
async def read_node(
    execution_id: ExecutionIdPath,
    node_id: Annotated[str, Path(max_length=500)],
    site: OfSite,
    *,
    item: Annotated[int | None, Query(ge=0, le=PLACE_MAX, description="One of a map")] = None,
    items_after: Annotated[int, Query(ge=-1, le=PLACE_MAX)] = -1,
    items_limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = ITEMS,
) -> dict[str, Json]:
    detail = await site.client.nodes.get(
        ExecutionId(execution_id),
        node_id,
        item=item,
        items_after=items_after,
        items_limit=items_limit,
    )
    return detail_document(detail)
