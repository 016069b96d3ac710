"""Executions that other processes run, told to a hub as if they were run here."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from runnel.app.engine import Adopts, Stops
from runnel.app.stores import Look
from runnel.client.store_client import Client
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.engine.liveness import Liveness, Patience
from runnel.notify.hub import Hub
from runnel.ports import Backend
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.ports.feed import FeedPage
from runnel.ports.store import Header, LeaseRecord
from runnel.ports.workers import WorkerRecord
from runnel.settings.model import Settings

# Whether anybody is there who decides and who works, as an onlooker can tell from the store.

Say: TypeAlias = Callable[[str], None]

# Long enough for whoever is just being started.
MOMENT_S = 2.0
ABSENCE_CHECK_S = 1.0

NO_ORCHESTRATOR = "no orchestrator is alive: start one with 'runnel orchestrator'"
NO_WORKER = "no worker is alive: start one with 'runnel worker'"
NOT_SERVED = "no worker that is alive takes tasks of the queue"


class Absence:
    """Says once what is missing, after a moment; and again after it has been there meanwhile.

    `queues` are those that the execution may put tasks into.
    """

    def __init__(
        self, backend: Backend, clock: Clock, settings: Settings, *, queues: frozenset[str]
    ) -> None:
        self._queues = queues
        self._backend = backend
        self._clock = clock
        self._owners: Liveness[int, LeaseRecord] = Liveness(clock, settings.lease_s)
        self._dead_after_s = settings.heartbeat_timeout_s
        self._workers: Liveness[str, int] = Liveness(clock, self._dead_after_s)
        self._since = clock.monotonic()
        self._looked_at = float("-inf")
        self._said: frozenset[str] = frozenset()

    async def tell(self, execution_id: ExecutionId, say: Say) -> None:
        """To be called now and then while the execution does not move."""
        now = self._clock.monotonic()
        if now - self._looked_at < ABSENCE_CHECK_S:
            return
        self._looked_at = now
        missing = await self._missing(execution_id)
        if now - self._since < MOMENT_S:
            return
        for sentence in missing:
            if sentence not in self._said:
                say(sentence)
        self._said = frozenset(missing)

    async def _missing(self, execution_id: ExecutionId) -> list[str]:
        store = self._backend.store
        partition = await store.route(execution_id)
        record = await store.observe(partition)
        is_owned = record is not None and not self._owners.is_dead(partition, record)
        workers = await self._backend.tasks.workers()
        # Each one is looked at, so that each one's silence is counted.
        alive = [each for each in workers if not self._is_dead(each)]
        missing = [] if is_owned else [NO_ORCHESTRATOR]
        if not alive:
            return [*missing, NO_WORKER]
        waiting = [each.queue for each in await self._backend.tasks.queues() if each.depth]
        abouts = [each.about for each in alive if each.about is not None]
        unserved = [
            queue
            for queue in self._queues.intersection(waiting)
            if abouts and not any(about.serves(queue) for about in abouts)
        ]
        return [*missing, *(f"{NOT_SERVED} '{queue}'" for queue in sorted(unserved))]

    def _is_dead(self, record: WorkerRecord) -> bool:
        grace_s = record.grace_s(self._dead_after_s)
        return self._workers.is_dead(record.worker, record.counter, grace_s=grace_s)


# A look at all that are awaited, should one of their changes not have been told; and how often
# it is asked whether anybody is there.
LOOK_EVERY_S = 1.0
# A long history is not read so often that it keeps the server busy, unless it has ended.
REST_PER_LOOK = 20
REST_S_MAX = 5.0


class Remote:
    """Stands where an `Engine` would for those who only watch; it runs nothing.

    `say` is given a sentence when nobody seems to be there who could make them go on.
    """

    def __init__(self, look: Look, *, absence: Absence | None, say: Say) -> None:
        self.client: Client = look.client
        self.hub: Hub = look.hub
        self.clock: Clock = look.clock
        self.stops = Stops(asyncio.Event(), asyncio.Event())
        self.secrets: Secrets = NoSecrets()
        self.recovered = asyncio.Event()
        self.recovered.set()
        self.name = "onlooker"
        self._look = look
        self._absence = absence
        self._say = say
        self._read: dict[str, int] = {}
        self._patience = Patience(look.clock, look.hub, self.name)
        self._changed: set[str] = set()
        self._news = asyncio.Event()
        self._no_rest = asyncio.Event()
        self._has_gap = True
        self._looks_at_all_at = 0.0

    async def run(self, *, adopts: Adopts = False) -> None:
        """Until `stops.gently`; tells of every execution whose ending somebody waits for."""
        self.hub.on_awaited = self._news.set
        try:
            async with self._look.newsroom.hear(self._hear), asyncio.TaskGroup() as group:
                stopping = group.create_task(self._wake_by_stop())
                while not self.stops.gently.is_set():
                    await self._look_around()
                stopping.cancel()
        finally:
            self.hub.on_awaited = None

    async def _wake_by_stop(self) -> None:
        await self.stops.gently.wait()
        self._no_rest.set()
        self._news.set()

    def _hear(self, page: FeedPage) -> None:
        """Of a feed with a thousand executions, what is about those that somebody waits for."""
        if page.has_gap:
            self._has_gap = True
            self._news.set()
            return
        awaited = set(self.hub.awaited())
        for change in page.changes:
            if change.execution_id in awaited:
                self._changed.add(change.execution_id)
                self._news.set()
                if change.state in EXECUTION_FINAL:
                    self._no_rest.set()

    async def _look_around(self) -> None:
        began = self.clock.monotonic()
        is_at_all = self._has_gap or began >= self._looks_at_all_at
        for execution_id in self._due(is_at_all=is_at_all):
            await self._tell(ExecutionId(execution_id))
        ended = self.clock.monotonic()
        rest_s = min(REST_S_MAX, REST_PER_LOOK * (ended - began))
        if is_at_all:
            self._looks_at_all_at = ended + max(LOOK_EVERY_S, rest_s)
        await self.clock.wait(self._no_rest, rest_s)
        await self.clock.wait(self._news, self._looks_at_all_at - self.clock.monotonic())

    def _due(self, *, is_at_all: bool) -> list[str]:
        """Those that have changed, and those that nobody has looked at yet."""
        self._news.clear()
        self._no_rest.clear()
        self._has_gap = False
        changed, self._changed = self._changed, set()
        awaited = self.hub.awaited()
        if is_at_all:
            return awaited
        return [each for each in awaited if each in changed or each not in self._read]

    async def _tell(self, execution_id: ExecutionId) -> None:
        archive = self._look.backend.archive
        known = self._read.get(execution_id, 0)
        entries = await self._patience.until_done(
            lambda: archive.load(execution_id, after=known), "load"
        )
        for entry in map(decode_entry, entries):
            is_end = any(isinstance(event, ExecutionFinished) for event in entry.events)
            header = await self._header(execution_id) if is_end else None
            self.hub.committed(execution_id, entry.at, entry.events, header)
        self._read[execution_id] = known + len(entries)
        absence = self._absence
        if absence is not None and not entries:
            await self._patience.until_done(lambda: absence.tell(execution_id, self._say), "look")

    async def _header(self, execution_id: ExecutionId) -> Header | None:
        archive = self._look.backend.archive
        return await self._patience.until_done(lambda: archive.get_header(execution_id), "header")
