"""What the routes of one process work on."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from runnel.api.http_metrics import HttpMetrics
from runnel.api.security.tokens import TokenStore
from runnel.api.sse_messages import MEDIA_TYPE, EncodedPageCache, HistoryCache, HistorySource
from runnel.app.engine import ClockAndIds
from runnel.app.secrets import load_worker_secrets
from runnel.app.wiring import build_scheduler
from runnel.client.operations import PartitionMonitor, StoreGauges
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.errors import OverloadedError, RunnelError, StoreError, TooManyStreamsError
from runnel.notify.feed_reader import FeedBroadcaster
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.telemetry import FanOutTelemetry
from runnel.settings.model import Settings
from runnel.telemetry.logs import LogTelemetry
from runnel.telemetry.metrics import MetricsTelemetry
from runnel.telemetry.prometheus import Exposition
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.webhook import WebhookStore
from runnel.triggers.webhook_receiver import WebhookReceiver

# Looks at the parts that a process needs, for somebody who does not wait for long.

PROBE_TIMEOUT_S = 3.0

Probe: TypeAlias = Callable[[], Awaitable[str | None]]


class ReadinessProbes:
    """Of each part one look at most is under way: it may take long to be ended, too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[str | None]] = {}

    async def find_problem(self, part: str, probe: Probe) -> str | None:
        """What `probe` says is wrong with the part, or why it could not say anything."""
        under_way = self._running.get(part)
        if under_way is None or under_way.done():
            under_way = asyncio.get_running_loop().create_task(_run_probe(probe))
            self._running[part] = under_way
        told = asyncio.Event()
        under_way.add_done_callback(lambda _look: told.set())
        if not await self._clock.wait(told, PROBE_TIMEOUT_S):
            return f"no answer within {PROBE_TIMEOUT_S:g} s"
        return under_way.result()


async def _run_probe(probe: Probe) -> str | None:
    try:
        return await probe()
    except StoreError as error:
        return str(error)


# The end of a process, for all who wait for something else on behalf of a client.


class StopEvent(asyncio.Event):
    """Set when the process ends.

    Whoever is `call_when_set` is called then: to wait for two things at once takes two tasks, which
    for 100 streams that are told something 4 times a second was a tenth of a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    @asynccontextmanager
    async def call_when_set(self, callback: Callable[[], None]) -> AsyncIterator[None]:
        """Calls it when the event is set, within the block; look at the event before each wait."""
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def set(self) -> None:
        super().set()
        for call in tuple(self._callbacks):
            call()


# How deep the queues are is asked so often at most, however many executions are begun.
RECHECK_INTERVAL_S = 1.0
STREAMS_MAX = 2_000

T = TypeVar("T")


class AppState:
    """`stopping` is set when the process ends: whoever waits on behalf of a client gives up.

    `metrics` are those of all that this process does, if it does more than to answer.
    `feed_broadcaster` is the one that the client listens to, if it has one. `stream_count` is how
    many there are.
    """

    def __init__(
        self,
        client: StoreClient,
        backend: Backend,
        world: ClockAndIds,
        settings: Settings,
        tokens: TokenStore,
        *,
        metrics: MetricsTelemetry | None = None,
        feed_broadcaster: FeedBroadcaster | None = None,
    ) -> None:
        self.client = client
        self.backend = backend
        self.clock = world.clock
        self.settings = settings
        self.tokens = tokens
        self.schedules = ScheduleStore(backend, world.clock, world.ids)
        self.webhooks = WebhookStore(backend, world.clock)
        secrets = load_worker_secrets(settings)
        self.receiver = WebhookReceiver(
            client, backend.archive, world.clock, secrets, check_capacity=self.check_capacity
        )
        metrics = metrics or MetricsTelemetry()
        telemetry = FanOutTelemetry(LogTelemetry(), metrics)
        self.scheduler = build_scheduler(backend, world, telemetry, client)
        self.partitions = PartitionMonitor(backend.store, world.clock, lease_s=settings.lease_s)
        self.feed_broadcaster = feed_broadcaster or FeedBroadcaster(
            backend.feed, world.clock, telemetry
        )
        self.gauges = StoreGauges(backend, world.clock, settings, self.partitions)
        self.http_metrics = HttpMetrics()
        metrics.include(self.http_metrics.collect_families)
        self.exposition = Exposition(metrics.collect_families, self.gauges.collect_families)
        self.probes = ReadinessProbes(world.clock)
        self.stopping = StopEvent()
        self.encoded_pages = EncodedPageCache()
        self.histories = HistoryCache(
            HistorySource(
                client=client,
                archive=backend.archive,
                clock=world.clock,
                stopping=self.stopping,
            )
        )
        self.stream_count = 0
        self._depths: dict[str, int] = {}
        self._depths_read_at: float | None = None

    async def check_capacity(self) -> None:
        """Raises OverloadedError while more tasks wait in a queue than the settings allow."""
        most = self.settings.queue_tasks_max
        now = self.clock.monotonic()
        if self._depths_read_at is None or now - self._depths_read_at > RECHECK_INTERVAL_S:
            self._depths_read_at = now
            found = await self.backend.tasks.queues()
            self._depths = {each.queue: each.depth for each in found if each.depth > most}
        for queue, depth in self._depths.items():
            raise OverloadedError(queue.removeprefix("tasks:"), depth, most)

    async def wait_until_final(self, execution_id: ExecutionId, timeout_s: float) -> None:
        """Until it is final, the time is up, or this process ends; raises NotFoundError."""
        await self.run_unless_stopping(self._wait_for_end(execution_id, timeout_s))

    async def run_unless_stopping(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it; None when this process ends first."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(_return_error(work))
            stopping = group.create_task(self.stopping.wait())
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            found = working.result() if working.done() else None
            working.cancel()
            stopping.cancel()
        if isinstance(found, RunnelError):
            raise found
        return found

    async def pause_unless_stopping(self, seconds: float) -> None:
        """Shorter when this process ends; not at all for what is not more than 0."""
        if seconds > 0:
            await self.clock.wait(self.stopping, seconds)

    def make_stream_response(
        self, messages: AsyncGenerator[bytes, None], *, token_id: str | None = None
    ) -> StreamingResponse:
        """Ends when the token is not good any more, within seconds.

        Raises TooManyStreamsError when this process has as many as it can serve.
        """
        if self.stream_count >= STREAMS_MAX:
            raise TooManyStreamsError(STREAMS_MAX)
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep them for itself
        return StreamingResponse(
            self._count_stream(messages, token_id), media_type=MEDIA_TYPE, headers=headers
        )

    async def _count_stream(
        self, messages: AsyncGenerator[bytes, None], token_id: str | None
    ) -> AsyncIterator[bytes]:
        self.stream_count += 1
        looked_at = self.clock.monotonic()
        try:
            async with aclosing(messages):
                async for each in messages:
                    now = self.clock.monotonic()
                    if token_id is not None and now - looked_at >= RECHECK_INTERVAL_S:
                        looked_at = now
                        if not await self.tokens.is_valid(token_id):
                            return
                    yield each
        finally:
            self.stream_count -= 1

    async def _wait_for_end(self, execution_id: ExecutionId, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await self.client.wait_for_end(execution_id, timeout_s=timeout_s)


async def _return_error(work: Coroutine[Any, Any, T]) -> T | RunnelError:
    """A group of tasks would wrap what one of them raises."""
    try:
        return await work
    except RunnelError as error:
        return error


async def _get_app_state(request: Request) -> AppState:
    """Not a plain function: FastAPI would call that in a thread, for each request."""
    site: AppState = request.app.state.site
    return site


AppStateDependency: TypeAlias = Annotated[AppState, Depends(_get_app_state)]
