"""The worker: wires its loops together, runs them, and ends them in order."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from runnel.authoring.context import Measurement
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.values import INLINE_BYTES_MAX
from runnel.core.workflow import RateLimit
from runnel.engine.blob_cache import BlobCache, RetryingBlobStore
from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.attempt import AttemptPipeline, HandlerLookup
from runnel.engine.worker.child_process import ChildProcessPool
from runnel.engine.worker.executor import Executor, ThreadPool
from runnel.engine.worker.heartbeat import Heartbeat
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.result_cache import ResultCache
from runnel.engine.worker.runner import RateLimiter, RunnerPool
from runnel.engine.worker.slots import ClaimLoop, Slots
from runnel.engine.worker.task_run import Deadlines, HeldTasks, StopReason, TaskRun
from runnel.errors import InputError, StoreError
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.ports.records import BlobStore
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import (
    HANDLER_METRIC,
    SHUTDOWN_STARTED,
    STORE_FAILED,
    THREAD_ABANDONED,
    WORKER_DRAINED,
    Telemetry,
)
from runnel.ports.workers import WorkerInfo

# How long the last calls to the store may take when everything else has ended.
SHUTDOWN_CALL_S = 5.0


class Worker:
    """Runs up to `concurrency` tasks at a time, of all `queues` or of those that are named.

    Up to `claim_ahead` more may be claimed while tasks end at once: right only where nobody else
    could run them in the meantime.
    `about` is what the registry shows of it; queues, concurrency, beats and the time of its start
    are filled in. `grace_s` is how long a handler may go on after it was cancelled, before it is
    ended by force. An output of more than `inline_bytes_max` is put aside. A worker is run once.
    """

    def __init__(
        self,
        tasks: TaskQueue,
        blobs: BlobStore,
        handlers: HandlerLookup,
        clock: Clock,
        telemetry: Telemetry,
        *,
        name: str,
        concurrency: int = 4,
        claim_ahead: int = 0,
        queues: Sequence[str] | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        about: WorkerInfo | None = None,
        secrets: Secrets | None = None,
        beat_s: float = 2.0,
        shutdown_s: float = 30.0,
        grace_s: float = 5.0,
        inline_bytes_max: int = INLINE_BYTES_MAX,
    ) -> None:
        if concurrency < 1:
            raise InputError(f"expected concurrency to be at least 1, got {concurrency}")
        self.name = name
        self.abandoned_threads = 0
        self._tasks, self._handlers = tasks, handlers
        self._clock, self._telemetry = clock, telemetry
        self._shutdown_s, self._grace_s = shutdown_s, grace_s
        self._inline_bytes_max = inline_bytes_max
        held = self._held = HeldTasks()
        self._slots = Slots(concurrency, claim_ahead=claim_ahead)
        self._deadlines = Deadlines(clock)
        self._threads, self._processes = ThreadPool(name), ChildProcessPool()
        around = WorkerDependencies(
            worker=name,
            tasks=tasks,
            clock=clock,
            telemetry=telemetry,
            store_retry=StoreRetry(clock, telemetry, name),
            secrets=secrets or NoSecrets(),
        )
        self._reporter = Reporter(around, held)
        said = replace(about or WorkerInfo(), queues=_to_tuple(queues), concurrency=concurrency)
        self._heartbeat = Heartbeat(
            around, held, self._stop_dropped, drain=self._drain, about=said, beat_s=beat_s
        )
        self._claims = ClaimLoop(around, self._slots, self._reporter, held=held, queues=queues)
        self._runners = RunnerPool(
            around,
            self._slots,
            self._make_pipeline(blobs, around),
            self._reporter,
            held=held,
            deadlines=self._deadlines,
            rate_limits=RateLimiter(tasks, rate_limits or {}),
            grace_s=grace_s,
        )
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._runner_tasks: list[asyncio.Task[None]] = []

    @property
    def holds(self) -> int:
        """Tasks between their claim and the acknowledgement of their report."""
        return len(self._held)

    async def run(self, stop: asyncio.Event, stop_now: asyncio.Event | None = None) -> None:
        """Works until `stop`, then finishes what runs within `shutdown_s`; `stop_now` cuts that.

        What has not ended by then is cancelled, and given up as lost to the store. A worker that
        the store tells to end sets `stop` itself, for all that ends with it.
        """
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._runners.open(asyncio.current_task())
        started_at = self._clock.now()
        self._heartbeat.about = replace(self._heartbeat.about, started_at=started_at)
        try:
            await self._work(stop, stop_now or asyncio.Event())
        finally:
            self._threads.close()
            await self._processes.close()
            await self._handlers.close()
            await self._unregister()

    async def _work(self, stop: asyncio.Event, stop_now: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            self._slots.open(partial(self._start_runner, group))
            claims = group.create_task(self._claims.run())
            loops = [
                group.create_task(self._heartbeat.beat()),
                group.create_task(self._heartbeat.listen()),
                group.create_task(self._deadlines.run(self._runners)),
                group.create_task(self._reporter.run()),
            ]
            try:
                await self._clock.wait(stop, None)
                await self._shut_down(claims, stop_now, group)
            finally:
                self._end_runners()
                for loop in loops:
                    loop.cancel()

    def _make_pipeline(self, blobs: BlobStore, dependencies: WorkerDependencies) -> AttemptPipeline:
        executor = Executor(
            self._threads,
            self._processes,
            on_suspend=self._on_suspended,
            on_abandoned=self._on_abandoned,
            on_returned=self._on_returned,
        )
        return AttemptPipeline(
            self._handlers,
            BlobCache(RetryingBlobStore(blobs, dependencies.store_retry)),
            executor,
            ResultCache(self._tasks),
            secrets=dependencies.secrets,
            emit=self._emit,
            on_suspend=self._on_suspended,
            inline_bytes_max=self._inline_bytes_max,
        )

    def _start_runner(self, group: asyncio.TaskGroup) -> None:
        self._runner_tasks.append(group.create_task(self._runners.run()))

    async def _shut_down(
        self, claims: asyncio.Task[None], stop_now: asyncio.Event, group: asyncio.TaskGroup
    ) -> None:
        self._telemetry.event(SHUTDOWN_STARTED, worker=self.name, holds=self.holds)
        self._heartbeat.update_info(replace(self._heartbeat.about, is_draining=True))
        self._claims.stop()
        await asyncio.wait([claims])
        self._runners.drain()
        await self._wait_until_quiet(stop_now, group)
        for run in self._held.unfinished():
            grace_s = 0.0 if stop_now.is_set() else None
            self._runners.stop(run, StopReason.SHUTDOWN, grace_s=grace_s)
        await self._clock.wait(self._runners.is_quiet, self._grace_s)
        await self._flush()

    async def _wait_until_quiet(self, stop_now: asyncio.Event, group: asyncio.TaskGroup) -> None:
        """Returns when nothing runs, when `stop_now` is set, or after `shutdown_s`."""
        either = asyncio.Event()

        async def relay(event: asyncio.Event) -> None:
            await self._clock.wait(event, None)
            either.set()

        relays = [group.create_task(relay(event)) for event in (stop_now, self._runners.is_quiet)]
        await self._clock.wait(either, self._shutdown_s)
        for relay_task in relays:
            relay_task.cancel()

    async def _flush(self) -> None:
        try:
            await self._clock.run_within(SHUTDOWN_CALL_S, self._reporter.wait_empty())
        except TimeoutError:
            self._telemetry.event(
                STORE_FAILED, worker=self.name, call="report", error="timed out at shutdown"
            )

    async def _unregister(self) -> None:
        try:
            await self._clock.run_within(SHUTDOWN_CALL_S, self._tasks.leave(self.name))
        except (TimeoutError, StoreError) as error:
            self._telemetry.event(
                STORE_FAILED, worker=self.name, call="leave", error=str(error) or "timed out"
            )

    def _end_runners(self) -> None:
        """Also when the worker itself is cancelled or a loop has failed: then by force."""
        self._runners.close()
        for run in self._held.unfinished():
            self._runners.stop(run, StopReason.SHUTDOWN)
            run.kill()
        for runner in self._runner_tasks:
            runner.cancel()

    def _stop_dropped(self, tokens: Sequence[TaskToken]) -> None:
        for token in tokens:
            run = self._held.find(token)
            if run is not None:
                self._runners.stop(run, StopReason.DROPPED)

    def _drain(self) -> None:
        if self._stop is not None and not self._stop.is_set():
            self._telemetry.event(WORKER_DRAINED, worker=self.name)
            self._stop.set()

    def _on_suspended(self, run: TaskRun) -> None:
        """A run that waits needs a deadline, and its waiting lets the next one begin."""
        self._slots.note_suspended()
        if not run.is_watched:
            self._deadlines.arm(run, run.watch(since=self._clock.monotonic()))

    def _on_abandoned(self, run: TaskRun) -> None:
        self.abandoned_threads += 1
        self._telemetry.event(
            THREAD_ABANDONED,
            worker=self.name,
            execution_id=run.token.execution_id,
            node_id=run.token.node_id,
            reason=str(run.stop_reason),
            abandoned=self.abandoned_threads,
        )

    def _on_returned(self, _run: TaskRun) -> None:
        self.abandoned_threads -= 1
        self._slots.release()
        self._slots.wake_runner()

    def _emit(self, task: TaskMessage, measurement: Measurement) -> None:
        """Telemetry is told on the loop, whichever thread measured."""
        if threading.get_ident() == self._thread_id:
            self._record_metric(task, measurement)
        elif self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: a thread has outlived its worker
                self._loop.call_soon_threadsafe(self._record_metric, task, measurement)

    def _record_metric(self, task: TaskMessage, measurement: Measurement) -> None:
        self._telemetry.event(
            HANDLER_METRIC,
            metric=measurement.name,
            kind=measurement.kind,
            value=measurement.value,
            labels=measurement.labels,
            handler=task.handler,
            execution_id=task.token.execution_id,
            node_id=task.token.node_id,
        )


def _to_tuple(queues: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if queues is None else tuple(queues)
