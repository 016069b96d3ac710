"""One server-sent event as it goes over the wire."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.client.store_client import Client
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.values import Json
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.views.execution import HistoryView, history_of, moment

MEDIA_TYPE = "text/event-stream"
# Proxies close connections on which nothing is heard for a minute or so.
BEAT_S = 15.0
BEAT = b": \n\n"
_PREFIX = "n"


def message(id_: str, event: str, data: dict[str, Json]) -> bytes:
    """JSON has no line breaks of its own: one line of data is enough."""
    body = msgspec.json.encode(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)


def of_history(place: int, each: HistoryView) -> bytes:
    """What happened, with its place in the history, from 1."""
    data = {"at": moment(each.at), "event": each.event, "fields": each.fields}
    return message(id_of(place), each.event, data)


def id_of(place: int) -> str:
    return _PREFIX + str(place)


def place_of(id_: str) -> int:
    """How many messages a client has got; 0 for an id that no message of a history has."""
    digits = id_.removeprefix(_PREFIX)
    is_known = id_.startswith(_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_known and len(digits) <= len(str(2**31)) else 0


# Pages of changes as messages, made once for all who are told the same.

KEPT = 100


class Pages:
    """Who listens to all is handed the same pages: the last ones are kept as they were told."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, bool], tuple[FeedPage, bytes]] = {}

    def told(self, pages: Sequence[FeedPage], *, children: bool) -> bytes:
        """Empty when there is nothing to tell."""
        return b"".join([self._one(each, children=children) for each in pages])

    def _one(self, page: FeedPage, *, children: bool) -> bytes:
        """A page that is kept keeps its `id`, too."""
        key = (id(page), children)
        known = self._told.get(key)
        if known is None:
            known = self._told[key] = (page, _told(page, children=children))
            if len(self._told) > KEPT:
                del self._told[next(iter(self._told))]
        return known[1]


def _told(page: FeedPage, *, children: bool) -> bytes:
    gap = [message(page.position, "gap", {})] if page.has_gap else []
    changes = [
        message(
            each.position,
            "execution",
            {"execution_id": each.execution_id, "status": each.state},
        )
        for each in page.changes
        if children or "." not in each.execution_id
    ]
    return b"".join([*gap, *changes])


# What has happened in the executions that are followed: read once for all who follow one.

# A long history takes time to read: it is read again after so many times that.
REST_PER_LOOK = 10
LENGTHS_KEPT = 1_000


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """`stopping` is set when the process ends: nobody rests then."""

    client: Client
    archive: Archive
    clock: Clock
    stopping: asyncio.Event


class Story:
    """`messages` are those of the history as it was at the last look, each made once."""

    def __init__(self, source: Source, execution_id: ExecutionId) -> None:
        self.messages: list[bytes] = []
        self.state = ExecutionState.PENDING
        self.followers = 0
        self._source = source
        self._execution_id = execution_id
        self._lock = asyncio.Lock()
        self._entries = 0
        self._looks_begun = 0
        self._last_look = 0
        self._rests_until = 0.0

    @property
    def is_over(self) -> bool:
        return self.state in EXECUTION_FINAL

    async def look(self) -> None:
        """Makes it as it was at some moment after this call; raises NotFoundError.

        Whoever asks while another one looks is served by the next look, together with all others.
        What is over does not change any more.
        """
        begun = self._looks_begun
        async with self._lock:
            if self.is_over or self._last_look > begun:
                return
            clock = self._source.clock
            rest_s = self._rests_until - clock.monotonic()
            if rest_s > 0:
                await clock.wait(self._source.stopping, rest_s)
            self._looks_begun += 1
            number, began = self._looks_begun, clock.monotonic()
            await self._read()
            ended = clock.monotonic()
            self._rests_until = ended + REST_PER_LOOK * (ended - began)
            self._last_look = number

    async def _read(self) -> None:
        """What is new since the last look; if that is nothing, the header says why."""
        entries = await self._load()
        if not entries:
            header = await self._source.client.header(self._execution_id)
            if header.state in EXECUTION_FINAL:
                # It may have ended since: what its header knows to be over is stored as a whole.
                entries = await self._load()
            self.state = header.state
        for each in history_of(entries):
            self.messages.append(of_history(len(self.messages) + 1, each))
            if each.event == ExecutionFinished.__name__:
                self.state = ExecutionState(each.fields["state"])
        self._entries += len(entries)

    async def _load(self) -> Sequence[bytes]:
        return await self._source.archive.load(self._execution_id, after=self._entries)


class Stories:
    """An execution is forgotten when the last one who follows it leaves.

    What is kept of one that is over is how long its story was: a browser that was told all comes
    back once more, and to count 40,000 messages anew takes half a second.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stories: dict[ExecutionId, Story] = {}
        self._lengths: dict[ExecutionId, int] = {}

    async def length(self, execution_id: ExecutionId) -> int:
        """How many messages there are of one that is over; raises NotFoundError."""
        known = self._lengths.get(execution_id)
        if known is not None:
            return known
        async with self.following(execution_id) as story:
            await story.look()
            return len(story.messages)

    @asynccontextmanager
    async def following(self, execution_id: ExecutionId) -> AsyncIterator[Story]:
        story = self._stories.setdefault(execution_id, Story(self._source, execution_id))
        story.followers += 1
        try:
            yield story
        finally:
            story.followers -= 1
            if not story.followers:
                del self._stories[execution_id]
                if story.is_over:
                    self._keep_length(execution_id, len(story.messages))

    def _keep_length(self, execution_id: ExecutionId, length: int) -> None:
        self._lengths[execution_id] = length
        if len(self._lengths) > LENGTHS_KEPT:
            del self._lengths[next(iter(self._lengths))]
