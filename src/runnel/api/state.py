"""The state that all routes of one API process share."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from runnel.api.http_metrics import HttpMetrics
from runnel.api.security.tokens import TokenStore
from runnel.api.sse_messages import MEDIA_TYPE, EncodedPageCache, HistoryCache, HistorySource
from runnel.app.embedded_engine import ClockAndIds
from runnel.app.secrets import load_worker_secrets
from runnel.app.wiring import build_scheduler
from runnel.client.operations import PartitionMonitor, StoreGauges, StoreOperations, to_queue_name
from runnel.client.store_client import StoreClient
from runnel.client.whole_values import ValueReader
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import OverloadedError, RunnelError, StoreError, TooManyStreamsError
from runnel.notify.feed_reader import FeedReader
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.telemetry import FanOutTelemetry
from runnel.settings.model import Settings
from runnel.telemetry.logs import LogTelemetry
from runnel.telemetry.metrics import MetricsTelemetry
from runnel.telemetry.prometheus import Exposition
from runnel.triggers.schedule_store import ScheduleStore, StoreSchedules
from runnel.triggers.webhook import WebhookStore
from runnel.triggers.webhook_receiver import WebhookReceiver

# Readiness probes, for callers that wait a few seconds at most.

PROBE_TIMEOUT_S = 3.0

Probe: TypeAlias = Callable[[], Awaitable[str | None]]


class ReadinessProbes:
    """Runs at most one probe per part at a time, because a hanging probe is slow to cancel."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Task[str | None]] = {}

    async def find_problem(self, part: str, probe: Probe) -> str | None:
        """Returns the problem that `probe` reports; None if the part works.

        A probe that takes longer than PROBE_TIMEOUT_S is a problem too.
        """
        running = self._running.get(part)
        if running is None or running.done():
            running = asyncio.get_running_loop().create_task(_run_probe(probe))
            self._running[part] = running
        is_done = asyncio.Event()
        running.add_done_callback(lambda _task: is_done.set())
        if not await self._clock.wait(is_done, PROBE_TIMEOUT_S):
            return f"no answer within {PROBE_TIMEOUT_S:g} s"
        return running.result()


async def _run_probe(probe: Probe) -> str | None:
    try:
        return await probe()
    except StoreError as error:
        return str(error)


# The shutdown of the process, for requests that wait for something else.


class StopEvent(asyncio.Event):
    """An event that is set when the process shuts down, with callbacks.

    Without callbacks, a stream needs two tasks to wait for the event and for its messages. With 100
    streams and 4 messages a second each, these tasks took a tenth of a processor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._callbacks: list[Callable[[], None]] = []

    @asynccontextmanager
    async def call_when_set(self, callback: Callable[[], None]) -> AsyncIterator[None]:
        """Calls `callback` when the event is set inside the block.

        The callback is not called if the event is set already: check the event before each wait.
        """
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)

    def set(self) -> None:
        super().set()
        for callback in tuple(self._callbacks):
            callback()


# Queue depths, and the token of a stream, are read again after this time at the earliest.
RECHECK_INTERVAL_S = 1.0
STREAMS_MAX = 2_000

T = TypeVar("T")


class AppState:
    """The client, backend, caches and telemetry of one API process.

    `stopping` is set when the process shuts down; requests that wait return then. `metrics` are
    shared with the other roles of the process, if it has any. `feed_reader` must be the one
    that the client listens to. `stream_count` is the number of open event streams.
    """

    def __init__(
        self,
        client: StoreClient,
        backend: Backend,
        clock_and_ids: ClockAndIds,
        settings: Settings,
        tokens: TokenStore,
        *,
        metrics: MetricsTelemetry | None = None,
        feed_reader: FeedReader | None = None,
    ) -> None:
        self.client = client
        self.backend = backend
        self.clock = clock_and_ids.clock
        self.settings = settings
        self.tokens = tokens
        self.schedules = StoreSchedules(
            ScheduleStore(backend, clock_and_ids.clock, clock_and_ids.ids), clock_and_ids.clock
        )
        self.webhooks = WebhookStore(backend, clock_and_ids.clock)
        secrets = load_worker_secrets(settings)
        metrics = metrics or MetricsTelemetry()
        telemetry = FanOutTelemetry(LogTelemetry(), metrics)
        self.receiver = WebhookReceiver(
            client,
            backend.archive,
            clock_and_ids.clock,
            secrets,
            check_capacity=self.check_capacity,
            telemetry=telemetry,
        )
        self.scheduler = build_scheduler(backend, clock_and_ids, telemetry, client)
        partitions = PartitionMonitor(backend.store, clock_and_ids.clock, lease_s=settings.lease_s)
        self.operations = StoreOperations(backend, clock_and_ids.clock, settings, partitions)
        self.feed_reader = feed_reader or FeedReader(backend.feed, clock_and_ids.clock, telemetry)
        self.gauges = StoreGauges(backend, clock_and_ids.clock, settings, partitions)
        self.http_metrics = HttpMetrics()
        metrics.include(self.http_metrics.collect_families)
        self.exposition = Exposition(metrics.collect_families, self.gauges.collect_families)
        self.probes = ReadinessProbes(clock_and_ids.clock)
        self.stopping = StopEvent()
        self.encoded_pages = EncodedPageCache()
        self.histories = HistoryCache(
            HistorySource(
                client=client,
                archive=backend.archive,
                clock=clock_and_ids.clock,
                stopping=self.stopping,
            )
        )
        self.stream_count = 0
        self._depths: dict[str, int] = {}
        self._depths_read_at: float | None = None

    async def check_capacity(self) -> None:
        """Raises OverloadedError while more tasks wait in a queue than the settings allow."""
        depth_max = self.settings.queue_tasks_max
        now = self.clock.monotonic()
        if self._depths_read_at is None or now - self._depths_read_at > RECHECK_INTERVAL_S:
            self._depths_read_at = now
            queues = await self.backend.tasks.queues()
            self._depths = {
                record.queue: record.depth for record in queues if record.depth > depth_max
            }
        for queue, depth in self._depths.items():
            raise OverloadedError(to_queue_name(queue), depth, depth_max)

    async def read_state(self, execution_id: ExecutionId) -> ExecutionState:
        """Returns the state of an execution.

        PENDING if the store does not list the execution yet.
        """
        header = await self.backend.archive.get_header(execution_id)
        return ExecutionState.PENDING if header is None else header.state

    async def wait_until_final(self, execution_id: ExecutionId, timeout_s: float) -> None:
        """Waits until the execution is final, the timeout expires, or this process shuts down.

        Raises NotFoundError.
        """
        await self.run_unless_stopping(self._wait_for_end(execution_id, timeout_s))

    async def run_unless_stopping(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Returns the result of `work`; None if this process shuts down first."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(_return_error(work))
            stopping = group.create_task(self.stopping.wait())
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            result = working.result() if working.done() else None
            working.cancel()
            stopping.cancel()
        if isinstance(result, RunnelError):
            raise result
        return result

    async def pause_unless_stopping(self, seconds: float) -> None:
        """Sleeps for `seconds`, or until this process shuts down; returns at once for 0 or less."""
        if seconds > 0:
            await self.clock.wait(self.stopping, seconds)

    def make_stream_response(
        self, messages: AsyncGenerator[bytes, None], *, token_id: str | None = None
    ) -> StreamingResponse:
        """Returns a stream that ends within seconds after its token is revoked or expires.

        Raises TooManyStreamsError if this process has STREAMS_MAX open streams.
        """
        self._check_stream_count()
        headers = {"X-Accel-Buffering": "no"}  # else nginx would buffer the messages
        return StreamingResponse(
            self._count_stream(messages, token_id), media_type=MEDIA_TYPE, headers=headers
        )

    def make_value_response(
        self, value: ValueReader, *, token_id: str | None = None
    ) -> StreamingResponse:
        """Returns a response that sends a value in chunks; breaks off if the token is revoked.

        Raises TooManyStreamsError if this process has STREAMS_MAX open streams.
        """
        self._check_stream_count()
        return StreamingResponse(
            self._count_stream(value.iter_chunks(), token_id),
            media_type="application/json",
            headers={"Content-Length": str(value.size)},
        )

    def _check_stream_count(self) -> None:
        if self.stream_count >= STREAMS_MAX:
            raise TooManyStreamsError(STREAMS_MAX)

    async def _count_stream(
        self, messages: AsyncGenerator[bytes, None], token_id: str | None
    ) -> AsyncIterator[bytes]:
        self.stream_count += 1
        checked_at = self.clock.monotonic()
        try:
            async with aclosing(messages):
                async for message in messages:
                    now = self.clock.monotonic()
                    if token_id is not None and now - checked_at >= RECHECK_INTERVAL_S:
                        checked_at = now
                        if not await self.tokens.is_valid(token_id):
                            return
                    yield message
        finally:
            self.stream_count -= 1

    async def _wait_for_end(self, execution_id: ExecutionId, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await self.client.wait_for_end(execution_id, timeout_s=timeout_s)


async def _return_error(work: Coroutine[Any, Any, T]) -> T | RunnelError:
    """Returns the error instead of raising it: a task group would wrap it in an ExceptionGroup."""
    try:
        return await work
    except RunnelError as error:
        return error


async def _get_app_state(request: Request) -> AppState:
    """Returns the state. It is a coroutine because FastAPI calls plain functions in a thread."""
    app_state: AppState = request.app.state.app_state
    return app_state


AppStateDependency: TypeAlias = Annotated[AppState, Depends(_get_app_state)]
