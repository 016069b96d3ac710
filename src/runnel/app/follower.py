"""Follows executions that other processes run, and publishes their events on the event bus."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from runnel.app.engine import AdoptedPartitions, StopEvents
from runnel.client.listing import execution_not_found_error
from runnel.client.operations import to_queue_key
from runnel.client.protocol import Client, Operations, find_owner
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.engine.store_retry import StoreRetry
from runnel.notify.event_bus import EventBus
from runnel.notify.feed_reader import FeedBroadcaster
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.ports.feed import FeedPage
from runnel.ports.store import ExecutionHeader

WarnFunction: TypeAlias = Callable[[str], None]

# Long enough for a process that is just being started.
GRACE_S = 2.0
CHECK_INTERVAL_S = 1.0

NO_ORCHESTRATOR = "no orchestrator is alive: start one with 'runnel orchestrator'"
NO_WORKER = "no worker is alive: start one with 'runnel worker'"
QUEUE_NOT_SERVED = "no worker that is alive takes tasks of the queue"
_ALIVE = ("alive", "draining")


class MissingProcessWarning:
    """Says once what is missing, after a moment; and again after it has been there meanwhile.

    `queues` are those that the execution may put tasks into.
    """

    def __init__(self, operations: Operations, clock: Clock, *, queues: frozenset[str]) -> None:
        self._queues = queues
        self._operations = operations
        self._clock = clock
        self._created_at = clock.monotonic()
        self._checked_at = float("-inf")
        self._reported: frozenset[str] = frozenset()

    async def check(self, execution_id: ExecutionId, warn: WarnFunction) -> None:
        """To be called now and then while the execution does not move."""
        now = self._clock.monotonic()
        if now - self._checked_at < CHECK_INTERVAL_S:
            return
        self._checked_at = now
        missing = await self._find_missing(execution_id)
        if now - self._created_at < GRACE_S:
            return
        for sentence in missing:
            if sentence not in self._reported:
                warn(sentence)
        self._reported = frozenset(missing)

    async def _find_missing(self, execution_id: ExecutionId) -> list[str]:
        owner = await find_owner(self._operations, execution_id)
        workers = [view for view in await self._operations.workers() if view.state in _ALIVE]
        missing = [] if owner is not None else [NO_ORCHESTRATOR]
        if not workers:
            return [*missing, NO_WORKER]
        if all(worker.host is None for worker in workers):
            return missing  # none has said yet which queues it takes
        unserved = {
            to_queue_key(queue.queue)
            for queue in await self._operations.queues()
            if queue.waiting and not queue.workers
        }
        return [
            *missing,
            *(f"{QUEUE_NOT_SERVED} '{queue}'" for queue in sorted(self._queues & unserved)),
        ]


# How often all awaited executions are polled, should a change not have been published, and how
# often the liveness of orchestrators and workers is checked.
POLL_INTERVAL_S = 1.0
# A long history is not read so often that it keeps the server busy, unless it has ended.
PAUSE_PER_POLL = 20
END_POLL_INTERVAL_S = 5.0
PAUSE_S_MAX = 5.0


class RemoteFollower:
    """Stands where an `Engine` would for those who only watch; it runs nothing.

    `warn` is given a sentence when nobody seems to be there who could make them go on.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        event_bus: EventBus,
        feed_broadcaster: FeedBroadcaster,
        *,
        missing_process_warning: MissingProcessWarning | None = None,
        warn: WarnFunction = lambda _sentence: None,
    ) -> None:
        self.client = client
        self.event_bus = event_bus
        self.clock = clock
        self.stops = StopEvents(asyncio.Event(), asyncio.Event())
        self.secrets: Secrets = NoSecrets()
        self.recovered = asyncio.Event()
        self.recovered.set()
        self.name = "onlooker"
        self._feed_broadcaster = feed_broadcaster
        self._missing_process_warning = missing_process_warning
        self._warn = warn
        self._entries_read: dict[str, int] = {}
        self._publishing = asyncio.Lock()
        self._store_retry = StoreRetry(clock, event_bus, self.name)
        self._changed: set[str] = set()
        self._wakeup = asyncio.Event()
        self._skip_pause = asyncio.Event()
        self._has_gap = True
        self._full_poll_at = 0.0

    async def run(self, *, adopts: AdoptedPartitions = False) -> None:
        """Runs until `stops.drain` is set; publishes every execution whose end a caller awaits."""
        self.event_bus.on_awaited = self._wakeup.set
        try:
            async with (
                self._feed_broadcaster.subscribe(self._on_page),
                asyncio.TaskGroup() as group,
            ):
                stopping = group.create_task(self._wake_on_stop())
                while not self.stops.drain.is_set():
                    await self._poll()
                stopping.cancel()
        finally:
            self.event_bus.on_awaited = None

    async def wait_until_final(self, execution_id: ExecutionId) -> None:
        """Returns after everything that happened before the end was published.

        The store is asked first, and again every few seconds: an execution that could not even be
        created ends without an event. Raises NotFoundError.
        """
        completion = self.event_bus.get_completion(execution_id)
        news = completion.add_listener()
        try:
            while completion.header is None:
                header = (await self.client.summaries([execution_id])).get(execution_id)
                if header is None:
                    raise execution_not_found_error(execution_id)
                if header.state in FINAL_EXECUTION_STATES:
                    await self._publish_new_events(execution_id)
                    return
                await self.clock.wait(news, END_POLL_INTERVAL_S)
                news.clear()
        finally:
            completion.remove_listener(news)

    async def _wake_on_stop(self) -> None:
        await self.stops.drain.wait()
        self._skip_pause.set()
        self._wakeup.set()

    def _on_page(self, page: FeedPage) -> None:
        """Of a feed with a thousand executions, what is about those that somebody waits for."""
        if page.has_gap:
            self._has_gap = True
            self._wakeup.set()
            return
        awaited = set(self.event_bus.list_awaited())
        for change in page.changes:
            if change.execution_id in awaited:
                self._changed.add(change.execution_id)
                self._wakeup.set()
                if change.state in FINAL_EXECUTION_STATES:
                    self._skip_pause.set()

    async def _poll(self) -> None:
        began = self.clock.monotonic()
        is_at_all = self._has_gap or began >= self._full_poll_at
        for execution_id in self._take_due(is_full_poll=is_at_all):
            if not await self._publish_new_events(ExecutionId(execution_id)):
                await self._warn_if_stalled(ExecutionId(execution_id))
        ended = self.clock.monotonic()
        rest_s = min(PAUSE_S_MAX, PAUSE_PER_POLL * (ended - began))
        if is_at_all:
            self._full_poll_at = ended + max(POLL_INTERVAL_S, rest_s)
        await self.clock.wait(self._skip_pause, rest_s)
        await self.clock.wait(self._wakeup, self._full_poll_at - self.clock.monotonic())

    def _take_due(self, *, is_full_poll: bool) -> list[str]:
        """Those that have changed, and those that nobody has looked at yet."""
        self._wakeup.clear()
        self._skip_pause.clear()
        self._has_gap = False
        changed, self._changed = self._changed, set()
        awaited = self.event_bus.list_awaited()
        if is_full_poll:
            return awaited
        return [
            execution_id
            for execution_id in awaited
            if execution_id in changed or execution_id not in self._entries_read
        ]

    async def _publish_new_events(self, execution_id: ExecutionId) -> bool:
        """Returns whether there were any."""
        # One call at a time: two would read the same entries, and publish them twice.
        async with self._publishing:
            known = self._entries_read.get(execution_id, 0)
            entries = await self._store_retry.run(
                lambda: self.client.read_entries(execution_id, after=known), "load"
            )
            for entry in entries:
                is_end = any(isinstance(event, ExecutionFinished) for event in entry.events)
                header = await self._load_header(execution_id) if is_end else None
                self.event_bus.committed(execution_id, entry.at, entry.events, header)
            self._entries_read[execution_id] = known + len(entries)
        return bool(entries)

    async def _warn_if_stalled(self, execution_id: ExecutionId) -> None:
        warning = self._missing_process_warning
        if warning is not None:
            await self._store_retry.run(lambda: warning.check(execution_id, self._warn), "look")

    async def _load_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        headers = await self._store_retry.run(
            lambda: self.client.summaries([execution_id]), "header"
        )
        return headers.get(execution_id)
