"""What happens, as it happens: server-sent events."""

from collections.abc import AsyncGenerator
from typing import Annotated, TypeAlias

from fastapi import Header, Query, Request, Response

from runnel.api.event_streams import (
    KEEPALIVE_COMMENT,
    KEEPALIVE_INTERVAL_S,
    MEDIA_TYPE,
    encode_message,
    make_message_id,
    parse_message_id,
)
from runnel.api.requests import ExecutionIdParam
from runnel.api.routing import OtherAnswer, ResourceRouter
from runnel.api.security.guard import get_token_id
from runnel.api.state import AppState, AppStateDependency
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.ports.feed import FeedPosition
from runnel.ports.store import ExecutionHeader
from runnel.views.page import ChangesPage, ChangeView
from runnel.views.token import Scope

# Server-sent events: what happens in one execution, or to which executions something happens.
#
# Each message has an id; a client that comes back with the last one it got (`Last-Event-ID`,
# which browsers send by themselves) misses nothing.

# So many messages at most are handed over at once: one by one, a long history costs ten times it.
MESSAGES_PER_CHUNK_MAX = 100
# While much happens it is told so often, and at once after a while in which nothing did: to wake
# 100 listeners for each of 200 commits a second took more than a processor.
SEND_INTERVAL_S = 0.25


async def stream_execution(
    app_state: AppState, execution_id: ExecutionId, after: str
) -> AsyncGenerator[bytes, None]:
    """Its history, from the beginning or behind the message `after`, until it is final."""
    sent = parse_message_id(after)
    async with (
        app_state.histories.follow(execution_id) as story,
        app_state.feed_broadcaster.listen(execution_id) as news,
        app_state.stopping.call_when_set(news.set),
    ):
        while not app_state.stopping.is_set():
            news.clear()
            await story.refresh()
            while sent < len(story.messages):
                some = story.messages[sent : sent + MESSAGES_PER_CHUNK_MAX]
                sent += len(some)
                yield b"".join(some)
            if story.is_final:
                yield encode_message(make_message_id(sent), "end", {"status": story.state})
                return
            while not await app_state.clock.wait(news, KEEPALIVE_INTERVAL_S):
                yield KEEPALIVE_COMMENT


async def stream_all(
    app_state: AppState, after: str | None, *, children: bool
) -> AsyncGenerator[bytes, None]:
    """Every change of an execution from now on, or behind the message `after`."""
    position = None if after is None else FeedPosition(after)
    async with (
        app_state.feed_broadcaster.open_subscription(after=position) as subscription,
        app_state.stopping.call_when_set(subscription.close),
    ):
        yield encode_message(subscription.position, "hello", {})
        rests_until = 0.0
        while not app_state.stopping.is_set():
            page = await subscription.next(wait_s=KEEPALIVE_INTERVAL_S)
            await app_state.pause_unless_stopping(rests_until - app_state.clock.monotonic())
            pages = [page, *subscription.take_all()]
            yield app_state.encoded_pages.encode(pages, children=children) or KEEPALIVE_COMMENT
            rests_until = app_state.clock.monotonic() + SEND_INTERVAL_S


async def has_received_all(app_state: AppState, header: ExecutionHeader, after: str) -> bool:
    """Whether a client that comes back has got all that there will ever be."""
    if header.state not in FINAL_EXECUTION_STATES or not after:
        return False
    return parse_message_id(after) >= await app_state.histories.count_messages(header.execution_id)


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
    "GET",
    "/executions/{execution_id}/events",
    "What happens in an execution, until it is final",
    scope=Scope.READ,
    problems=(404, 422),
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
    "GET",
    "/events",
    "Which executions change, and their new states",
    scope=Scope.READ,
    problems=(422,),
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
    "GET",
    "/changes",
    "The same in pages, for programs: waits until something changes",
    scope=Scope.READ,
    problems=(422,),
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
