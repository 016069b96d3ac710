"""What happens, as it happens: server-sent events."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from runnel.api.answers import problems
from runnel.api.bodies import StrictRoute
from runnel.api.messages import MEDIA_TYPE
from runnel.api.models.events import Changes
from runnel.api.parameters import ExecutionIdPath
from runnel.api.security.callers import needs, token_of
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.api.streams import is_told, of_all, of_execution
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.ports.feed import FeedPosition

WAIT_S_MAX = 30.0
CHANGES = 500

router = APIRouter(tags=["events"], route_class=StrictRoute)
READ = [needs(Scope.READ)]
_STREAM = {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}, "description": "A stream"}
_OVER = {"description": "All of it was told before: do not come back"}

LastEventId: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=500,
        description="The id of the last message that was got: the stream goes on behind it",
    ),
]


@router.get(
    "/executions/{execution_id}/events",
    operation_id="follow_execution",
    summary="What happens in an execution, until it is final",
    response_class=StreamingResponse,
    dependencies=READ,
    responses={**problems(404, 422), 200: _STREAM, 204: _OVER},
)
async def follow(
    request: Request, execution_id: ExecutionIdPath, site: OfSite, last: LastEventId = None
) -> Response:
    """`event` is the name of what happened, `end` the last one."""
    header = await site.client.header(ExecutionId(execution_id))
    if await is_told(site, header, last or ""):
        return Response(status_code=204)
    messages = of_execution(site, ExecutionId(execution_id), last or "")
    return site.stream(messages, token_id=token_of(request))


@router.get(
    "/events",
    operation_id="follow_all",
    summary="Which executions change, and their new states",
    response_class=StreamingResponse,
    dependencies=READ,
    responses={**problems(422), 200: _STREAM},
)
async def follow_all(
    request: Request,
    site: OfSite,
    *,
    children: Annotated[bool, Query(description="Child executions too")] = False,
    last: LastEventId = None,
) -> Response:
    """`execution` says which one changed, with its `status` if that did; after `gap` something is
    not known any more: list anew.
    """
    return site.stream(of_all(site, last, children=children), token_id=token_of(request))


@router.get(
    "/changes",
    operation_id="list_changes",
    summary="The same in pages, for programs: waits until something changes",
    response_model=Changes,
    dependencies=READ,
    responses=problems(422),
)
async def changes(
    site: OfSite,
    *,
    after: Annotated[
        str | None, Query(max_length=500, description="`position` of the page before")
    ] = None,
    wait: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="In seconds")] = 0.0,
) -> dict[str, Json]:
    """Without `after`, where the end is: nothing that changes from now on is missed behind it."""
    feed = site.backend.feed
    if after is None:
        return {"items": [], "position": await feed.end(), "has_gap": False}
    asked = FeedPosition(after)
    page = await site.or_stopped(feed.read(asked, limit=CHANGES, wait_s=wait))
    if page is None:
        return {"items": [], "position": asked, "has_gap": False}
    items = [
        {"execution_id": each.execution_id, "status": each.state, "position": each.position}
        for each in page.changes
    ]
    return {"items": items, "position": page.position, "has_gap": page.has_gap}
