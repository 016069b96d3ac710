"""Routes of server-sent events, and of changes in pages."""

from typing import Annotated, TypeAlias

from fastapi import Header, Query, Request, Response

from runnel.api.event_streams import has_received_all, stream_all, stream_execution
from runnel.api.requests import ExecutionIdParam
from runnel.api.resource_router import OtherAnswer, ResourceRouter
from runnel.api.security.access_control import get_token_id
from runnel.api.sse_messages import MEDIA_TYPE
from runnel.api.state import AppStateDependency
from runnel.core.ids import ExecutionId
from runnel.ports.feed import FeedPosition
from runnel.views.page import ChangesPage, ChangeView
from runnel.views.token import Scope

WAIT_S_MAX = 30.0
CHANGES_PER_PAGE = 500

routes = ResourceRouter("events")
_STREAM = OtherAnswer(
    "A stream of server-sent events", content={MEDIA_TYPE: {"schema": {"type": "string"}}}
)
_ALREADY_RECEIVED = OtherAnswer("The client has received every message; do not reconnect")

LastEventIdHeader: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=500,
        description="The id of the last message that the client received; the stream continues "
        "after it",
    ),
]


@routes.operation(
    "GET /executions/{execution_id}/events",
    Scope.READ,
    "Follow the events of an execution, until it is final",
    404,
    other_answers={200: _STREAM, 204: _ALREADY_RECEIVED},
)
async def follow_execution(
    request: Request,
    execution_id: ExecutionIdParam,
    app_state: AppStateDependency,
    last: LastEventIdHeader = None,
) -> Response:
    """Each message has the type of its event as `event`; the last message is `end`."""
    header = await app_state.client.get_header(ExecutionId(execution_id))
    if await has_received_all(app_state, header, last or ""):
        return Response(status_code=204)
    messages = stream_execution(app_state, ExecutionId(execution_id), last or "")
    return app_state.make_stream_response(messages, token_id=get_token_id(request))


@routes.operation(
    "GET /events",
    Scope.READ,
    "Follow the changes of all executions",
    other_answers={200: _STREAM},
)
async def follow_all(
    request: Request,
    app_state: AppStateDependency,
    *,
    children: Annotated[bool, Query(description="Also report child executions")] = False,
    last: LastEventIdHeader = None,
) -> Response:
    """A message `execution` names an execution that has changed, and its `status` if that changed.
    After a message `gap`, changes were lost: list the executions again.
    """
    return app_state.make_stream_response(
        stream_all(app_state, last, children=children), token_id=get_token_id(request)
    )


@routes.operation(
    "GET /changes",
    Scope.READ,
    "List the changes of all executions in pages; waits for the next change",
)
async def list_changes(
    app_state: AppStateDependency,
    *,
    after: Annotated[
        str | None, Query(max_length=500, description="`position` of the previous page")
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=WAIT_S_MAX, description="Seconds to wait for a change")
    ] = 0.0,
) -> ChangesPage:
    """Without `after`, returns only the current position: no change after it is missed."""
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
