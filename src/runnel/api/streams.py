"""Server-sent events: what happens in one execution, or to which executions something happens.

Each message has an id; a client that comes back with the last one it got (`Last-Event-ID`, which
browsers send by themselves) misses nothing.
"""

from collections.abc import AsyncGenerator, Sequence

import msgspec

from runnel.api.site import Site
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.core.states import EXECUTION_FINAL
from runnel.ports.feed import FeedPosition
from runnel.ports.store import Header
from runnel.views import HistoryView, history_of, moment

MEDIA_TYPE = "text/event-stream"
# Proxies close connections on which nothing is heard for a minute or so.
BEAT_S = 15.0
BEAT = b": \n\n"
# A long history takes time to read: it is read again after so many times that.
REST_PER_LOOK = 10
_PREFIX = "n"


async def of_execution(
    site: Site, execution_id: ExecutionId, after: str
) -> AsyncGenerator[bytes, None]:
    """Its history, from the beginning or behind the message `after`, until it is final."""
    sent = place_of(after)
    async with site.newsroom.listen(execution_id) as news:
        while not site.stopping.is_set():
            news.clear()
            began = site.clock.monotonic()
            header, history = await _look(site, execution_id)
            for number, each in enumerate(history[sent:], start=sent + 1):
                yield _message(_PREFIX + str(number), each.event, _document(each))
            sent = max(sent, len(history))
            if header.state in EXECUTION_FINAL:
                yield _message(_PREFIX + str(sent), "end", {"status": header.state})
                return
            await site.pause(REST_PER_LOOK * (site.clock.monotonic() - began))
            while not await site.hears(news, BEAT_S) and not site.stopping.is_set():
                yield BEAT


async def of_all(site: Site, after: str | None, *, children: bool) -> AsyncGenerator[bytes, None]:
    """Every change of an execution from now on, or behind the message `after`."""
    position = None if after is None else FeedPosition(after)
    async with site.newsroom.listen_all(after=position) as subscription:
        yield _message(subscription.position, "hello", {})
        while not site.stopping.is_set():
            page = await site.or_stopped(subscription.next(wait_s=BEAT_S))
            if page is None:
                return
            if page.has_gap:
                yield _message(page.position, "gap", {})
            wanted = [each for each in page.changes if children or "." not in each.execution_id]
            for each in wanted:
                data = {"execution_id": each.execution_id, "status": each.state}
                yield _message(each.position, "execution", data)
            if not wanted and not page.has_gap:
                yield BEAT


def place_of(after: str) -> int:
    """How many messages a client has got; 0 for an id that no message of a history has."""
    digits = after.removeprefix(_PREFIX)
    is_known = after.startswith(_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_known and len(digits) <= len(str(2**31)) else 0


async def is_told(site: Site, header: Header, after: str) -> bool:
    """Whether a client that comes back has got all that there will ever be."""
    if header.state not in EXECUTION_FINAL or not after:
        return False
    entries = await site.backend.archive.load(header.execution_id)
    return place_of(after) >= len(history_of(entries))


async def _look(site: Site, execution_id: ExecutionId) -> tuple[Header, Sequence[HistoryView]]:
    """The header first: what it knows to be over has its whole history stored."""
    header = await site.client.header(execution_id)
    return header, history_of(await site.backend.archive.load(execution_id))


def _document(each: HistoryView) -> dict[str, Json]:
    return {"at": moment(each.at), "event": each.event, "fields": each.fields}


def _message(id_: str, event: str, data: dict[str, Json]) -> bytes:
    """JSON has no line breaks of its own: one line of data is enough."""
    body = msgspec.json.encode(data)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), event.encode(), body)
