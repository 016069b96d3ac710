"""What the routes of one process work on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from runnel.api.event_streams import MEDIA_TYPE, Pages, Source, Stories
from runnel.api.http_metrics import HttpMetrics
from runnel.api.security.tokens import Tokens
from runnel.app.engine import World
from runnel.app.secrets import secrets_of_worker
from runnel.app.wiring import build_scheduler
from runnel.client.operations import Partitions, StoreGauges
from runnel.client.store_client import Client
from runnel.core.ids import ExecutionId
from runnel.errors import OverloadedError, RunnelError, StoreError, TooManyStreamsError
from runnel.notify.feed_reader import Newsroom
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.telemetry import Several
from runnel.telemetry.logs import LogTelemetry
from runnel.telemetry.metrics import Metrics
from runnel.telemetry.prometheus import Exposition
from runnel.triggers.schedule_store import Schedules
from runnel.triggers.webhook import Webhooks
from runnel.triggers.webhook_receiver import Receiver

# Looks at the parts that a process needs, for somebody who does not wait for long.

LOOK_S = 3.0

Look: TypeAlias = Callable[[], Awaitable[str | None]]


class Probes:
    """Of each part one look at most is under way: it may take long to be ended, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[str, asyncio.Task[str | None]] = {}

    async def problem(self, part: str, look: Look) -> str | None:
        """What `look` says is wrong with the part, or why it could not say anything."""
        under_way = self._looks.get(part)
        if under_way is None or under_way.done():
            under_way = asyncio.get_running_loop().create_task(_told(look))
            self._looks[part] = under_way
        told = asyncio.Event()
        under_way.add_done_callback(lambda _look: told.set())
        if not await self._clock.wait(told, LOOK_S):
            return f"no answer within {LOOK_S:g} s"
        return under_way.result()


async def _told(look: Look) -> str | None:
    try:
        return await look()
    except StoreError as error:
        return str(error)


# The end of a process, for all who wait for something else on behalf of a client.


class Stopping(asyncio.Event):
    """Set when the process ends.

    Whoever is `waking` is called then: to wait for two things at once takes two tasks, which for
    100 streams that are told something 4 times a second was a tenth of a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], None]] = []

    @asynccontextmanager
    async def waking(self, call: Callable[[], None]) -> AsyncIterator[None]:
        """Calls it when the event is set, within the block; look at the event before each wait."""
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def set(self) -> None:
        super().set()
        for call in tuple(self._calls):
            call()


# How deep the queues are is asked so often at most, however many executions are begun.
LOOK_AGAIN_S = 1.0
STREAMS_MAX = 2_000

T = TypeVar("T")


class Site:
    """`stopping` is set when the process ends: whoever waits on behalf of a client gives up.

    `metrics` are those of all that this process does, if it does more than to answer. `newsroom` is
    the one that the client listens to, if it has one. `streams` is how many there are.
    """

    def __init__(
        self,
        client: Client,
        backend: Backend,
        world: World,
        settings: Settings,
        tokens: Tokens,
        *,
        metrics: Metrics | None = None,
        newsroom: Newsroom | None = None,
    ) -> None:
        self.client = client
        self.backend = backend
        self.clock = world.clock
        self.settings = settings
        self.tokens = tokens
        self.schedules = Schedules(backend, world.clock, world.ids)
        self.webhooks = Webhooks(backend, world.clock)
        secrets = secrets_of_worker(settings)
        self.receiver = Receiver(
            client, backend.archive, world.clock, secrets, check_room=self.check_room
        )
        metrics = metrics or Metrics()
        telemetry = Several(LogTelemetry(), metrics)
        self.scheduler = build_scheduler(backend, world, telemetry, client)
        self.partitions = Partitions(backend.store, world.clock, lease_s=settings.lease_s)
        self.newsroom = newsroom or Newsroom(backend.feed, world.clock, telemetry)
        self.gauges = StoreGauges(backend, world.clock, settings, self.partitions)
        self.http_metrics = HttpMetrics()
        metrics.include(self.http_metrics.families)
        self.exposition = Exposition(metrics.families, self.gauges.families)
        self.probes = Probes(world.clock)
        self.stopping = Stopping()
        self.pages = Pages()
        self.stories = Stories(
            Source(
                client=client,
                archive=backend.archive,
                clock=world.clock,
                stopping=self.stopping,
            )
        )
        self.streams = 0
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
        await self.or_stopped(self._end_of(execution_id, timeout_s))

    async def or_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it; None when this process ends first."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(_caught(work))
            stopping = group.create_task(self.stopping.wait())
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            found = working.result() if working.done() else None
            working.cancel()
            stopping.cancel()
        if isinstance(found, RunnelError):
            raise found
        return found

    async def pause(self, seconds: float) -> None:
        """Shorter when this process ends; not at all for what is not more than 0."""
        if seconds > 0:
            await self.clock.wait(self.stopping, seconds)

    def stream(
        self, messages: AsyncGenerator[bytes, None], *, token_id: str | None = None
    ) -> StreamingResponse:
        """Ends when the token is not good any more, within seconds.

        Raises TooManyStreamsError when this process has as many as it can serve.
        """
        if self.streams >= STREAMS_MAX:
            raise TooManyStreamsError(STREAMS_MAX)
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep them for itself
        return StreamingResponse(
            self._counted(messages, token_id), media_type=MEDIA_TYPE, headers=headers
        )

    async def _counted(
        self, messages: AsyncGenerator[bytes, None], token_id: str | None
    ) -> AsyncIterator[bytes]:
        self.streams += 1
        looked_at = self.clock.monotonic()
        try:
            async with aclosing(messages):
                async for each in messages:
                    now = self.clock.monotonic()
                    if token_id is not None and now - looked_at >= LOOK_AGAIN_S:
                        looked_at = now
                        if not await self.tokens.is_good(token_id):
                            return
                    yield each
        finally:
            self.streams -= 1

    async def _end_of(self, execution_id: ExecutionId, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await self.client.wait(execution_id, timeout_s=timeout_s)


async def _caught(work: Coroutine[Any, Any, T]) -> T | RunnelError:
    """A group of tasks would wrap what one of them raises."""
    try:
        return await work
    except RunnelError as error:
        return error


async def _site(request: Request) -> Site:
    """Not a plain function: FastAPI would call that in a thread, for each request."""
    site: Site = request.app.state.site
    return site


OfSite: TypeAlias = Annotated[Site, Depends(_site)]
