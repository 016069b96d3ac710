"""Executions that other processes run, told to a hub as if they were run here."""

import asyncio

from runnel.client import Client
from runnel.core.codec import decode_entry
from runnel.core.events import ExecutionFinished
from runnel.core.ids import ExecutionId
from runnel.engine.worker.patience import Patience
from runnel.ports.clock import Clock
from runnel.ports.secrets import NoSecrets, Secrets
from runnel.ports.store import Header
from runnel.runtime.absence import Absence, Say
from runnel.runtime.engine import Adopts, Stops
from runnel.runtime.hub import Hub
from runnel.runtime.look import Look

# Nobody is told by a server when an execution moves: its history is read again and again, so
# often that a person sees no delay, and so rarely that a long one does not keep the server busy.
LOOK_EVERY_S = 0.1
LOOK_EVERY_S_MAX = 5.0
REST_PER_LOOK = 20


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

    async def run(self, *, adopts: Adopts = False) -> None:
        """Until `stops.gently`; tells of every execution whose ending somebody waits for."""
        while not self.stops.gently.is_set():
            began = self.clock.monotonic()
            for execution_id in self.hub.awaited():
                await self._tell(ExecutionId(execution_id))
            took_s = self.clock.monotonic() - began
            pause_s = min(LOOK_EVERY_S_MAX, max(LOOK_EVERY_S, REST_PER_LOOK * took_s))
            await self.clock.wait(self.stops.gently, pause_s)

    async def _tell(self, execution_id: ExecutionId) -> None:
        archive = self._look.backend.archive
        entries = await self._patience.until_done(lambda: archive.load(execution_id), "load")
        known = self._read.get(execution_id, 0)
        for entry in map(decode_entry, entries[known:]):
            is_end = any(isinstance(event, ExecutionFinished) for event in entry.events)
            header = await self._header(execution_id) if is_end else None
            self.hub.committed(execution_id, entry.at, entry.events, header)
        self._read[execution_id] = max(known, len(entries))
        absence = self._absence
        if absence is not None and len(entries) <= known:
            await self._patience.until_done(lambda: absence.tell(execution_id, self._say), "look")

    async def _header(self, execution_id: ExecutionId) -> Header | None:
        archive = self._look.backend.archive
        return await self._patience.until_done(lambda: archive.get_header(execution_id), "header")
