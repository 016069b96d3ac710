"""What happens, as it happens: server-sent events."""

from typing import Annotated, TypeAlias

from fastapi import Header, Query, Request, Response

from runnel.api.event_streams import has_received_all, stream_all, stream_execution
from runnel.api.requests import ExecutionIdParam
from runnel.api.routing import OtherAnswer, ResourceRouter
from runnel.api.security.guard import get_token_id
from runnel.api.sse_messages import MEDIA_TYPE
from runnel.api.state import AppStateDependency
from runnel.core.ids import ExecutionId
from runnel.ports.feed import FeedPosition
from runnel.views.page import ChangesPage, ChangeView
from runnel.views.token import Scope

WAIT_S_MAX = 30.0
CHANGES_PER_PAGE = 500

routes = ResourceRouter("events")
_STREAM = OtherAnswer("A stream", content={MEDIA_TYPE: {"schema": {"type": "string"}}})
_ALREADY_RECEIVED = OtherAnswer("All of it was told before: do not come back")

LastEventIdHeader: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=500,
        description="The id of the last message that was got: the stream goes on behind it",
    ),
]


@routes.operation(
    "GET /executions/{execution_id}/events",
    Scope.READ,
    "What happens in an execution, until it is final",
    404,
    others={200: _STREAM, 204: _ALREADY_RECEIVED},
)
async def follow_execution(
    request: Request,
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    last: LastEventIdHeader = None,
) -> Response:
    """`event` is the name of what happened, `end` the last one."""
    header = await app_state.client.get_header(ExecutionId(execution_id))
    if await has_received_all(app_state, header, last or ""):
        return Response(status_code=204)
    messages = stream_execution(app_state, ExecutionId(execution_id), last or "")
    return app_state.make_stream_response(messages, token_id=get_token_id(request))


@routes.operation(
    "GET /events",
    Scope.READ,
    "Which executions change, and their new states",
    others={200: _STREAM},
)
async def follow_all(
    request: Request,
    app_state: AppStateDependency,
    *,
    children: Annotated[bool, Query(description="Child executions too")] = False,
    last: LastEventIdHeader = None,
) -> Response:
    """`execution` says which one changed, with its `status` if that did; after `gap` something is
    not known any more: list anew.
    """
    return app_state.make_stream_response(
        stream_all(app_state, last, children=children), token_id=get_token_id(request)
    )


@routes.operation(
    "GET /changes",
    Scope.READ,
    "The same in pages, for programs: waits until something changes",
)
async def list_changes(
    app_state: AppStateDependency,
    *,
    after: Annotated[
        str | None, Query(max_length=500, description="`position` of the page before")
    ] = None,
    wait: Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="In seconds")] = 0.0,
) -> ChangesPage:
    """Without `after`, where the end is: nothing that changes from now on is missed behind it."""
    feed = app_state.backend.feed
    if after is None:
        return ChangesPage(items=[], position=await feed.end(), has_gap=False)
    position = FeedPosition(after)
    page = await app_state.run_unless_stopping(
        feed.read(position, limit=CHANGES_PER_PAGE, wait_s=wait)
    )
    if page is None:
        return ChangesPage(items=[], position=position, has_gap=False)
    changes = [
        ChangeView(execution_id=change.execution_id, status=change.state, position=change.position)
        for change in page.changes
    ]
    return ChangesPage(items=changes, position=page.position, has_gap=page.has_gap)
