"""Server-sent events: the history of one execution, or the changes of all.

Each message has an id. A client that reconnects with the id of its last message (`Last-Event-ID`,
which browsers send by themselves) misses nothing.
"""

from collections.abc import AsyncGenerator

from runnel.api.sse_messages import (
    KEEPALIVE_COMMENT,
    KEEPALIVE_INTERVAL_S,
    encode_message,
    parse_message_id,
)
from runnel.api.state import AppState
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.errors import StoreError
from runnel.ports.feed import FeedPosition
from runnel.ports.store import ExecutionHeader
from runnel.views.execution import make_event_id

# The number of messages that are sent together. To send a long history one message at a time costs
# ten times as much.
MESSAGES_PER_CHUNK_MAX = 100

# If no change was sent in the last interval, a change is sent at once. If one was sent, the next
# changes are collected and sent at the end of the interval. Waking 100 listeners for each of 200
# commits a second took more than one processor.
SEND_INTERVAL_S = 0.25


async def stream_execution(
    app_state: AppState, execution_id: ExecutionId, after: str
) -> AsyncGenerator[bytes, None]:
    """Yields the messages of an execution after the message `after`, until it is final."""
    sent = parse_message_id(after)
    async with (
        app_state.histories.follow(execution_id) as history,
        app_state.feed_reader.listen(execution_id) as wakeup,
        app_state.stopping.call_when_set(wakeup.set),
    ):
        is_notified = True
        while not app_state.stopping.is_set():
            wakeup.clear()
            try:
                await history.refresh()
            except StoreError:
                # A read without a notification is a precaution: an idle stream survives its error.
                if is_notified:
                    raise
            while sent < len(history.messages):
                chunk = history.messages[sent : sent + MESSAGES_PER_CHUNK_MAX]
                sent += len(chunk)
                yield b"".join(chunk)
            if history.is_final:
                yield encode_message(make_event_id(sent), "end", {"status": history.state})
                return
            # After a keepalive the history is read again, in case a notification was lost.
            is_notified = await app_state.clock.wait(wakeup, KEEPALIVE_INTERVAL_S)
            if not is_notified:
                yield KEEPALIVE_COMMENT


async def stream_all(
    app_state: AppState, after: str | None, *, children: bool
) -> AsyncGenerator[bytes, None]:
    """Yields the changes of all executions from now on, or those after the message `after`."""
    position = None if after is None else FeedPosition(after)
    async with (
        app_state.feed_reader.open_subscription(after=position) as subscription,
        app_state.stopping.call_when_set(subscription.close),
    ):
        yield encode_message(subscription.position, "hello", {})
        paused_until = 0.0
        while not app_state.stopping.is_set():
            page = await subscription.next(wait_s=KEEPALIVE_INTERVAL_S)
            await app_state.pause_unless_stopping(paused_until - app_state.clock.monotonic())
            pages = [page, *subscription.take_all()]
            yield app_state.encoded_pages.encode(pages, children=children) or KEEPALIVE_COMMENT
            paused_until = app_state.clock.monotonic() + SEND_INTERVAL_S


async def has_received_all(app_state: AppState, header: ExecutionHeader, after: str) -> bool:
    """Returns True if the execution is final and the client has received all its messages."""
    if header.state not in FINAL_EXECUTION_STATES or not after:
        return False
    return parse_message_id(after) >= await app_state.histories.count_messages(header.execution_id)
