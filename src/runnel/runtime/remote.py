"""Executions that other processes run, told to a hub as if they were run here."""

import asyncio

from runnel.client import Client
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.core.states import EXECUTION_FINAL
from runnel.engine.patience import Patience
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage
from runnel.ports.secrets import NoSecrets, Secrets
from runnel.ports.store import Header
from runnel.runtime.absence import Absence, Say
from runnel.runtime.engine import Adopts, Stops
from runnel.runtime.hub import Hub
from runnel.runtime.look import Look

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
