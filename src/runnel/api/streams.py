"""Server-sent events: what happens in one execution, or to which executions something happens.

Each message has an id; a client that comes back with the last one it got (`Last-Event-ID`, which
browsers send by themselves) misses nothing.
"""

from collections.abc import AsyncGenerator

from runnel.api.messages import BEAT, BEAT_S, id_of, message, place_of
from runnel.api.site import Site
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.ports.feed import FeedPosition
from runnel.ports.store import Header

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


async def is_told(site: Site, header: Header, after: str) -> bool:
    """Whether a client that comes back has got all that there will ever be."""
    if header.state not in EXECUTION_FINAL or not after:
        return False
    return place_of(after) >= await site.stories.length(header.execution_id)
