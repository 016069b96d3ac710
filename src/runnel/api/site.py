"""What the routes of one process work on."""

import asyncio
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from runnel.api.security.tokens import Tokens
from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.errors import OverloadedError, RunnelError
from runnel.operations.partitions import Partitions
from runnel.ports.backend import Backend
from runnel.runtime.build import build_scheduler
from runnel.runtime.engine import World
from runnel.runtime.secret_values import secrets_of_worker
from runnel.settings import Settings
from runnel.telemetry.logs import LogTelemetry
from runnel.triggers.receiving import Receiver
from runnel.triggers.schedules import Schedules
from runnel.triggers.webhooks import Webhooks

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
        self.webhooks = Webhooks(backend, world.clock)
        secrets = secrets_of_worker(settings)
        self.receiver = Receiver(client, backend.archive, world.clock, secrets)
        self.partitions = Partitions(backend.store, world.clock, lease_s=settings.lease_s)
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
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._outcome(execution_id, timeout_s))
            stopping = group.create_task(self.stopping.wait())
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            error = waiting.result() if waiting.done() else None
            waiting.cancel()
            stopping.cancel()
        if error is not None:
            raise error

    async def _outcome(self, execution_id: ExecutionId, timeout_s: float) -> RunnelError | None:
        """Returned, because a group of tasks would wrap what one of them raises."""
        try:
            await self.client.wait(execution_id, timeout_s=timeout_s)
        except TimeoutError:
            return None
        except RunnelError as error:
            return error
        return None


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


OfSite: TypeAlias = Annotated[Site, Depends(_site)]
