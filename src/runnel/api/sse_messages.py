"""Server-sent events: one message on the wire, pages of changes, and followed histories."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.notify.history_reader import HistoryReader
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.views import encode_view
from runnel.views.execution import EVENT_ID_PREFIX, HistoryEvent, make_event_id

MEDIA_TYPE = "text/event-stream"
# Proxies close connections on which nothing is heard for a minute or so.
KEEPALIVE_INTERVAL_S = 15.0
KEEPALIVE_COMMENT = b": \n\n"


def encode_message(id_: str, event: str, data: object) -> bytes:
    """JSON has no line breaks of its own: one line of data is enough."""
    body = encode_view(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)


def encode_history_message(number: int, entry: HistoryEvent) -> bytes:
    """What happened, with its place in the history, from 1."""
    return encode_message(make_event_id(number), entry.event, entry)


def parse_message_id(id_: str) -> int:
    """How many messages a client has got; 0 for an id that no message of a history has."""
    digits = id_.removeprefix(EVENT_ID_PREFIX)
    is_known = id_.startswith(EVENT_ID_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_known and len(digits) <= len(str(2**31)) else 0


# Pages of changes as messages, made once for all who are told the same.

ENCODED_PAGES_MAX = 100


class EncodedPageCache:
    """Who listens to all is handed the same pages: the last ones are kept as they were told."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[int, bool], tuple[FeedPage, bytes]] = {}

    def encode(self, pages: Sequence[FeedPage], *, children: bool) -> bytes:
        """Empty when there is nothing to tell."""
        return b"".join([self._encode_one(page, children=children) for page in pages])

    def _encode_one(self, page: FeedPage, *, children: bool) -> bytes:
        """A page that is kept keeps its `id`, too."""
        key = (id(page), children)
        known = self._encoded.get(key)
        if known is None:
            known = self._encoded[key] = (page, _encode_page(page, children=children))
            if len(self._encoded) > ENCODED_PAGES_MAX:
                del self._encoded[next(iter(self._encoded))]
        return known[1]


def _encode_page(page: FeedPage, *, children: bool) -> bytes:
    gap = [encode_message(page.position, "gap", {})] if page.has_gap else []
    changes = [
        encode_message(
            change.position,
            "execution",
            {"execution_id": change.execution_id, "status": change.state},
        )
        for change in page.changes
        if children or "." not in change.execution_id
    ]
    return b"".join([*gap, *changes])


# What has happened in the executions that are followed: read once for all who follow one.

# A long history takes time to read: it is read again after so many times that.
PAUSE_PER_READ = 10
LENGTHS_CACHED_MAX = 1_000


class HistorySource(msgspec.Struct, frozen=True, kw_only=True):
    """`stopping` is set when the process ends: nobody rests then."""

    client: StoreClient
    archive: Archive
    clock: Clock
    stopping: asyncio.Event


class FollowedHistory:
    """The messages of a history as it was at the last read, each encoded once."""

    def __init__(self, source: HistorySource, execution_id: ExecutionId) -> None:
        self.messages: list[bytes] = []
        self.followers = 0
        self._source = source
        self._reader = HistoryReader(source.archive, execution_id, source.client.get_header)
        self._lock = asyncio.Lock()
        self._reads_started = 0
        self._last_read = 0
        self._paused_until = 0.0

    @property
    def state(self) -> ExecutionState:
        return self._reader.state

    @property
    def is_final(self) -> bool:
        return self._reader.is_final

    async def refresh(self) -> None:
        """Makes it as it was at some moment after this call; raises NotFoundError.

        Whoever asks while another one looks is served by the next look, together with all others.
        What is over does not change any more.
        """
        begun = self._reads_started
        async with self._lock:
            if self.is_final or self._last_read > begun:
                return
            clock = self._source.clock
            rest_s = self._paused_until - clock.monotonic()
            if rest_s > 0:
                await clock.wait(self._source.stopping, rest_s)
            self._reads_started += 1
            number, began = self._reads_started, clock.monotonic()
            for event in await self._reader.read_new():
                self.messages.append(encode_history_message(len(self.messages) + 1, event))
            ended = clock.monotonic()
            self._paused_until = ended + PAUSE_PER_READ * (ended - began)
            self._last_read = number


class HistoryCache:
    """An execution is forgotten when the last one who follows it leaves.

    What is kept of one that is over is how long its story was: a browser that was told all comes
    back once more, and to count 40,000 messages anew takes half a second.
    """

    def __init__(self, source: HistorySource) -> None:
        self._source = source
        self._histories: dict[ExecutionId, FollowedHistory] = {}
        self._lengths: dict[ExecutionId, int] = {}

    async def count_messages(self, execution_id: ExecutionId) -> int:
        """How many messages there are of one that is over; raises NotFoundError."""
        known = self._lengths.get(execution_id)
        if known is not None:
            return known
        async with self.follow(execution_id) as story:
            await story.refresh()
            return len(story.messages)

    @asynccontextmanager
    async def follow(self, execution_id: ExecutionId) -> AsyncIterator[FollowedHistory]:
        story = self._histories.setdefault(
            execution_id, FollowedHistory(self._source, execution_id)
        )
        story.followers += 1
        try:
            yield story
        finally:
            story.followers -= 1
            if not story.followers:
                del self._histories[execution_id]
                if story.is_final:
                    self._remember_length(execution_id, len(story.messages))

    def _remember_length(self, execution_id: ExecutionId, length: int) -> None:
        self._lengths[execution_id] = length
        if len(self._lengths) > LENGTHS_CACHED_MAX:
            del self._lengths[next(iter(self._lengths))]
