"""Encodes server-sent events: pages of changes, and the histories that clients follow."""

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
# The interval of comments on an idle stream. Proxies close connections that are silent for about a
# minute.
KEEPALIVE_INTERVAL_S = 15.0
KEEPALIVE_COMMENT = b": \n\n"


def encode_message(id_: str, event: str, data: object) -> bytes:
    """Encodes one message; its JSON has no line breaks, so it is one line of data."""
    body = encode_view(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)


def encode_history_message(number: int, entry: HistoryEvent) -> bytes:
    """Encodes an event of a history; `number` counts the events from 1."""
    return encode_message(make_event_id(number), entry.event, entry)


def parse_message_id(id_: str) -> int:
    """Returns the number of messages that a client has received; 0 for an id of another stream."""
    digits = id_.removeprefix(EVENT_ID_PREFIX)
    is_known = id_.startswith(EVENT_ID_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_known and len(digits) <= len(str(2**31)) else 0


# Pages of changes, encoded once for all listeners.

ENCODED_PAGES_MAX = 100


class EncodedPageCache:
    """Caches the messages of the last pages, because all streams of changes get the same pages."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[int, bool], tuple[FeedPage, bytes]] = {}

    def encode(self, pages: Sequence[FeedPage], *, children: bool) -> bytes:
        """Returns the messages of the pages; empty when they have none."""
        return b"".join([self._encode_cached(page, children=children) for page in pages])

    def _encode_cached(self, page: FeedPage, *, children: bool) -> bytes:
        """Returns the messages of a page from the cache.

        The key is the `id` of the page object, which is unique while the cache holds the page.
        """
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


# Histories, read once for all clients that follow the same execution.

# The pause before the next read, as a multiple of the duration of the last one.
PAUSE_PER_READ = 10
LENGTHS_CACHED_MAX = 1_000


class HistorySource(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that read histories; `stopping` is set when the process ends, and ends a pause."""

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
        """Reads the new events; the read starts after the call. Raises NotFoundError.

        Calls that arrive during a read share the next read. The history of a final execution is not
        read again, because it does not change.
        """
        started = self._reads_started
        async with self._lock:
            if self.is_final or self._last_read > started:
                return
            clock = self._source.clock
            pause_s = self._paused_until - clock.monotonic()
            if pause_s > 0:
                await clock.wait(self._source.stopping, pause_s)
            self._reads_started += 1
            number, began = self._reads_started, clock.monotonic()
            for event in await self._reader.read_new():
                self.messages.append(encode_history_message(len(self.messages) + 1, event))
            ended = clock.monotonic()
            self._paused_until = ended + PAUSE_PER_READ * (ended - began)
            self._last_read = number


class HistoryCache:
    """The histories that clients follow; a history is dropped when its last follower leaves.

    The cache keeps the length of the history of a final execution. A browser that has received all
    messages reconnects once more, and counting 40,000 messages again takes 0.5 s.
    """

    def __init__(self, source: HistorySource) -> None:
        self._source = source
        self._histories: dict[ExecutionId, FollowedHistory] = {}
        self._lengths: dict[ExecutionId, int] = {}

    async def count_messages(self, execution_id: ExecutionId) -> int:
        """Returns the number of messages of a final execution; raises NotFoundError."""
        known = self._lengths.get(execution_id)
        if known is not None:
            return known
        async with self.follow(execution_id) as history:
            await history.refresh()
            return len(history.messages)

    @asynccontextmanager
    async def follow(self, execution_id: ExecutionId) -> AsyncIterator[FollowedHistory]:
        history = self._histories.setdefault(
            execution_id, FollowedHistory(self._source, execution_id)
        )
        history.followers += 1
        try:
            yield history
        finally:
            history.followers -= 1
            if not history.followers:
                del self._histories[execution_id]
                if history.is_final:
                    self._remember_length(execution_id, len(history.messages))

    def _remember_length(self, execution_id: ExecutionId, length: int) -> None:
        self._lengths[execution_id] = length
        if len(self._lengths) > LENGTHS_CACHED_MAX:
            del self._lengths[next(iter(self._lengths))]
