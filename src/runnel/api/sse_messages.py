"""Server-sent events: one message on the wire, pages of changes, and followed histories."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.client.store_client import StoreClient
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.views import encode_view
from runnel.views.execution import HistoryEvent, decode_history

MEDIA_TYPE = "text/event-stream"
# Proxies close connections on which nothing is heard for a minute or so.
KEEPALIVE_INTERVAL_S = 15.0
KEEPALIVE_COMMENT = b": \n\n"
_EVENT_ID_PREFIX = "n"


def encode_message(id_: str, event: str, data: object) -> bytes:
    """JSON has no line breaks of its own: one line of data is enough."""
    body = encode_view(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)


def encode_history_message(number: int, entry: HistoryEvent) -> bytes:
    """What happened, with its place in the history, from 1."""
    return encode_message(make_message_id(number), entry.event, entry)


def make_message_id(number: int) -> str:
    return _EVENT_ID_PREFIX + str(number)


def parse_message_id(id_: str) -> int:
    """How many messages a client has got; 0 for an id that no message of a history has."""
    digits = id_.removeprefix(_EVENT_ID_PREFIX)
    is_known = id_.startswith(_EVENT_ID_PREFIX) and digits.isascii() and digits.isdecimal()
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
    """`messages` are those of the history as it was at the last look, each made once."""

    def __init__(self, source: HistorySource, execution_id: ExecutionId) -> None:
        self.messages: list[bytes] = []
        self.state = ExecutionState.PENDING
        self.followers = 0
        self._source = source
        self._execution_id = execution_id
        self._lock = asyncio.Lock()
        self._entries_read = 0
        self._reads_started = 0
        self._last_read = 0
        self._paused_until = 0.0

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_EXECUTION_STATES

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
            await self._read_new_entries()
            ended = clock.monotonic()
            self._paused_until = ended + PAUSE_PER_READ * (ended - began)
            self._last_read = number

    async def _read_new_entries(self) -> None:
        """What is new since the last look; if that is nothing, the header says why."""
        entries = await self._load_entries()
        if not entries:
            header = await self._source.client.get_header(self._execution_id)
            if header.state in FINAL_EXECUTION_STATES:
                # It may have ended since: what its header knows to be over is stored as a whole.
                entries = await self._load_entries()
            self.state = header.state
        for event in decode_history(entries):
            self.messages.append(encode_history_message(len(self.messages) + 1, event))
            if event.event == ExecutionFinished.__name__:
                self.state = ExecutionState(event.fields["state"])
        self._entries_read += len(entries)

    async def _load_entries(self) -> Sequence[bytes]:
        return await self._source.archive.load(self._execution_id, after=self._entries_read)


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
