"""Follows executions that other processes run, and publishes their events on the event bus."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from runnel.app.engine import AdoptedPartitions, StopEvents
from runnel.app.stores import StoreSession
from runnel.client.store_client import StoreClient
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.engine.liveness import FailureDetector
from runnel.engine.store_retry import StoreRetry
from runnel.notify.event_bus import EventBus
from runnel.ports import Backend
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.ports.feed import FeedPage
from runnel.ports.store import ExecutionHeader, LeaseRecord
from runnel.ports.workers import WorkerRecord
from runnel.settings.model import Settings

WarnFunction: TypeAlias = Callable[[str], None]

# Long enough for a process that is just being started.
GRACE_S = 2.0
CHECK_INTERVAL_S = 1.0

NO_ORCHESTRATOR = "no orchestrator is alive: start one with 'runnel orchestrator'"
NO_WORKER = "no worker is alive: start one with 'runnel worker'"
QUEUE_NOT_SERVED = "no worker that is alive takes tasks of the queue"


class MissingProcessWarning:
    """Says once what is missing, after a moment; and again after it has been there meanwhile.

    `queues` are those that the execution may put tasks into.
    """

    def __init__(
        self, backend: Backend, clock: Clock, settings: Settings, *, queues: frozenset[str]
    ) -> None:
        self._queues = queues
        self._backend = backend
        self._clock = clock
        self._owners: FailureDetector[int, LeaseRecord] = FailureDetector(clock, settings.lease_s)
        self._dead_after_s = settings.heartbeat_timeout_s
        self._workers: FailureDetector[str, int] = FailureDetector(clock, self._dead_after_s)
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
        store = self._backend.store
        partition = await store.route(execution_id)
        record = await store.observe(partition)
        is_owned = record is not None and not self._owners.is_dead(partition, record)
        workers = await self._backend.tasks.workers()
        # Each one is looked at, so that each one's silence is counted.
        alive = [worker for worker in workers if not self._is_dead(worker)]
        missing = [] if is_owned else [NO_ORCHESTRATOR]
        if not alive:
            return [*missing, NO_WORKER]
        waiting = [queue.queue for queue in await self._backend.tasks.queues() if queue.depth]
        abouts = [worker.about for worker in alive if worker.about is not None]
        unserved = [
            queue
            for queue in self._queues.intersection(waiting)
            if abouts and not any(about.serves(queue) for about in abouts)
        ]
        return [*missing, *(f"{QUEUE_NOT_SERVED} '{queue}'" for queue in sorted(unserved))]

    def _is_dead(self, record: WorkerRecord) -> bool:
        grace_s = record.grace_s(self._dead_after_s)
        return self._workers.is_dead(record.worker, record.counter, grace_s=grace_s)


# How often all awaited executions are polled, should a change not have been published, and how
# often the liveness of orchestrators and workers is checked.
POLL_INTERVAL_S = 1.0
# A long history is not read so often that it keeps the server busy, unless it has ended.
PAUSE_PER_POLL = 20
PAUSE_S_MAX = 5.0


class RemoteFollower:
    """Stands where an `Engine` would for those who only watch; it runs nothing.

    `warn` is given a sentence when nobody seems to be there who could make them go on.
    """

    def __init__(
        self,
        session: StoreSession,
        *,
        missing_process_warning: MissingProcessWarning | None,
        warn: WarnFunction,
    ) -> None:
        self.client: StoreClient = session.client
        self.event_bus: EventBus = session.event_bus
        self.clock: Clock = session.clock
        self.stops = StopEvents(asyncio.Event(), asyncio.Event())
        self.secrets: Secrets = NoSecrets()
        self.recovered = asyncio.Event()
        self.recovered.set()
        self.name = "onlooker"
        self._session = session
        self._missing_process_warning = missing_process_warning
        self._warn = warn
        self._entries_read: dict[str, int] = {}
        self._store_retry = StoreRetry(session.clock, session.event_bus, self.name)
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
                self._session.feed_broadcaster.subscribe(self._on_page),
                asyncio.TaskGroup() as group,
            ):
                stopping = group.create_task(self._wake_on_stop())
                while not self.stops.drain.is_set():
                    await self._poll()
                stopping.cancel()
        finally:
            self.event_bus.on_awaited = None

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
            await self._publish_new_events(ExecutionId(execution_id))
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

    async def _publish_new_events(self, execution_id: ExecutionId) -> None:
        archive = self._session.backend.archive
        known = self._entries_read.get(execution_id, 0)
        entries = await self._store_retry.run(
            lambda: archive.load(execution_id, after=known), "load"
        )
        for entry in map(decode_entry, entries):
            is_end = any(isinstance(event, ExecutionFinished) for event in entry.events)
            header = await self._load_header(execution_id) if is_end else None
            self.event_bus.committed(execution_id, entry.at, entry.events, header)
        self._entries_read[execution_id] = known + len(entries)
        absence = self._missing_process_warning
        if absence is not None and not entries:
            await self._store_retry.run(lambda: absence.check(execution_id, self._warn), "look")

    async def _load_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        archive = self._session.backend.archive
        return await self._store_retry.run(lambda: archive.get_header(execution_id), "header")
