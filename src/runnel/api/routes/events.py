"""What happens, as it happens: server-sent events."""

from collections.abc import AsyncGenerator
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from runnel.api.event_streams import BEAT, BEAT_S, MEDIA_TYPE, id_of, message, place_of
from runnel.api.models import Changes
from runnel.api.requests import ExecutionIdPath, StrictRoute
from runnel.api.responses import problems
from runnel.api.security.guard import needs, token_of
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite, Site
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.core.values import Json
from runnel.ports.feed import FeedPosition
from runnel.ports.store import Header as Header_of_streams

# Server-sent events: what happens in one execution, or to which executions something happens.
#
# Each message has an id; a client that comes back with the last one it got (`Last-Event-ID`,
# which browsers send by themselves) misses nothing.

# So many messages at most are handed over at once: one by one, a long history costs ten times it.
TOGETHER = 100
# While much happens it is told so often, and at once after a while in which nothing did: to wake
# 100 listeners for each of 200 commits a second took more than a processor.
REST_S = 0.25


async def of_execution(
    site: Site, execution_id: ExecutionId, after: str
) -> AsyncGenerator[bytes, None]:
    """Its history, from the beginning or behind the message `after`, until it is final."""
    sent = place_of(after)
    async with (
        site.stories.following(execution_id) as story,
        site.newsroom.listen(execution_id) as news,
        site.stopping.waking(news.set),
    ):
        while not site.stopping.is_set():
            news.clear()
            await story.look()
            while sent < len(story.messages):
                some = story.messages[sent : sent + TOGETHER]
                sent += len(some)
                yield b"".join(some)
            if story.is_over:
                yield message(id_of(sent), "end", {"status": story.state})
                return
            while not await site.clock.wait(news, BEAT_S):
                yield BEAT


async def of_all(site: Site, after: str | None, *, children: bool) -> AsyncGenerator[bytes, None]:
    """Every change of an execution from now on, or behind the message `after`."""
    position = None if after is None else FeedPosition(after)
    async with (
        site.newsroom.listen_all(after=position) as subscription,
        site.stopping.waking(subscription.close),
    ):
        yield message(subscription.position, "hello", {})
        rests_until = 0.0
        while not site.stopping.is_set():
            page = await subscription.next(wait_s=BEAT_S)
            await site.pause(rests_until - site.clock.monotonic())
            pages = [page, *subscription.take_all()]
            yield site.pages.told(pages, children=children) or BEAT
            rests_until = site.clock.monotonic() + REST_S


async def is_told(site: Site, header: Header_of_streams, after: str) -> bool:
    """Whether a client that comes back has got all that there will ever be."""
    if header.state not in EXECUTION_FINAL or not after:
        return False
    return place_of(after) >= await site.stories.length(header.execution_id)


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
