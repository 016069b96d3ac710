"""Reads the history of one execution as it grows, until the execution is final."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.notify.feed_reader import FeedReader
from runnel.notify.waiter import POLL_INTERVAL_S, POLL_INTERVAL_S_MAX
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader
from runnel.views.execution import HistoryEvent, decode_history

# The reader pauses for 20 times the duration of a read, so that a long history does not keep the
# store busy.
PAUSE_PER_READ = 20
PAUSE_S_MAX = 5.0


class HistoryReader:
    """Reads the new events of one execution's history.

    `state` is the state of the execution at the last read. `state` is final only after all events
    have been returned. `read_header` raises NotFoundError for an unknown execution.
    """

    def __init__(
        self,
        archive: Archive,
        execution_id: ExecutionId,
        read_header: Callable[[ExecutionId], Awaitable[ExecutionHeader]],
    ) -> None:
        self.state = ExecutionState.PENDING
        self._archive = archive
        self._execution_id = execution_id
        self._read_header = read_header
        self._entries_read = 0

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_EXECUTION_STATES

    async def read_new(self) -> list[HistoryEvent]:
        """Returns the events since the last read; raises NotFoundError.

        If there are no new events, the method reads the state from the header, because an execution
        that could not be created has no events.
        """
        entries = await self._archive.load(self._execution_id, after=self._entries_read)
        if not entries:
            header = await self._read_header(self._execution_id)
            if header.state in FINAL_EXECUTION_STATES:
                # The execution may have ended after the first load. If the header is final, the
                # complete history is stored.
                entries = await self._archive.load(self._execution_id, after=self._entries_read)
            self.state = header.state
        events = decode_history(entries)
        self._entries_read += len(entries)
        for event in events:
            if event.event == ExecutionFinished.__name__:
                self.state = ExecutionState(event.fields["state"])
        return events


async def follow_history(
    reader: HistoryReader,
    execution_id: ExecutionId,
    feed_reader: FeedReader | None,
    clock: Clock,
) -> AsyncIterator[HistoryEvent]:
    """Yields the events of an execution as they are stored, until it is final.

    The history is read when the feed reader reports a change, and every 5 s in case the feed misses
    a change. Without a feed reader, the history is read every 0.5 s.
    """
    changed, ended = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as listening:
        if feed_reader is not None:
            await listening.enter_async_context(feed_reader.listen(execution_id, changed))
            await listening.enter_async_context(
                feed_reader.listen(execution_id, ended, ends_only=True)
            )
        while True:
            changed.clear()
            ended.clear()
            read_started_at = clock.monotonic()
            events = await reader.read_new()
            pause_s = min(PAUSE_S_MAX, PAUSE_PER_READ * (clock.monotonic() - read_started_at))
            for event in events:
                yield event
            if reader.is_final:
                return
            await clock.wait(ended, pause_s)
            poll_interval_s = POLL_INTERVAL_S if feed_reader is None else POLL_INTERVAL_S_MAX
            await clock.wait(changed, poll_interval_s)
