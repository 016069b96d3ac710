"""What the routes of one process work on."""

import asyncio
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from runnel.api.security.tokens import Tokens
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.errors import OverloadedError
from runnel.ports.backend import Backend
from runnel.runtime.build import build_scheduler
from runnel.runtime.engine import World
from runnel.settings import Settings
from runnel.telemetry.logs import LogTelemetry
from runnel.triggers.schedules import Schedules

# How deep the queues are is asked so often at most, however many executions are begun.
LOOK_AGAIN_S = 1.0


class Site:
    """`stopping` is set when the process ends: whoever waits on behalf of a client gives up."""

    def __init__(
        self, client: Client, backend: Backend, world: World, settings: Settings, tokens: Tokens
    ) -> None:
        self.client = client
        self.backend = backend
        self.clock = world.clock
        self.settings = settings
        self.tokens = tokens
        self.schedules = Schedules(backend, world.clock, world.ids)
        self.scheduler = build_scheduler(backend, world, LogTelemetry(), client)
        self.stopping = asyncio.Event()
        self._depths: dict[str, int] = {}
        self._looked_at: float | None = None

    async def check_room(self) -> None:
        """Raises OverloadedError while more tasks wait in a queue than the settings allow."""
        most = self.settings.queue_tasks_max
        now = self.clock.monotonic()
        if self._looked_at is None or now - self._looked_at > LOOK_AGAIN_S:
            self._looked_at = now
            found = await self.backend.tasks.queues()
            self._depths = {each.queue: each.depth for each in found if each.depth > most}
        for queue, depth in self._depths.items():
            raise OverloadedError(queue.removeprefix("tasks:"), depth, most)

    async def wait(self, execution_id: ExecutionId, timeout_s: float) -> None:
        """Until it is final, the time is up, or this process ends; raises NotFoundError."""
        waiting = asyncio.ensure_future(self.client.wait(execution_id, timeout_s=timeout_s))
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and not isinstance(waiting.exception(), TimeoutError):
                waiting.result()
        finally:
            waiting.cancel()
            stopping.cancel()


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


OfSite: TypeAlias = Annotated[Site, Depends(_site)]
