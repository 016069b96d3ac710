"""The worker: connects and runs its loops, and shuts them down in order."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from runnel.authoring.context import Measurement
from runnel.core.effects import TaskMessage
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.core.values import INLINE_BYTES_MAX
from runnel.core.workflow import RateLimit
from runnel.engine.blob_cache import BlobCache, RetryingBlobStore
from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker import WorkerDependencies
from runnel.engine.worker.attempt import AttemptPipeline, HandlerLookup
from runnel.engine.worker.child_process import ChildProcessPool
from runnel.engine.worker.deadlines import Deadlines
from runnel.engine.worker.executor import Executor
from runnel.engine.worker.heartbeat import Heartbeat
from runnel.engine.worker.refusals import TaskRefusals
from runnel.engine.worker.reports import Reporter
from runnel.engine.worker.result_cache import ResultCache
from runnel.engine.worker.runner import RateLimiter, RunnerPool
from runnel.engine.worker.slots import ClaimLoop, Slots
from runnel.engine.worker.task_run import HeldTasks, StopReason, TaskRun
from runnel.engine.worker.threads import ShortCalls, ThreadPool
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

# The time limit of each store call at the end of a shutdown.
SHUTDOWN_CALL_S = 5.0
# The most threads per slot that may continue after their task has ended, without a slot. A further
# thread keeps the slot of its task until its function returns.
ABANDONED_PER_SLOT = 4


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits, intervals and description of a worker.

    The worker runs up to `concurrency` tasks at a time, from `queues`, or from all queues if
    `queues` is None. While tasks end without waiting, the worker claims up to `claim_ahead` further
    tasks. Set `claim_ahead` only if no other worker could run these tasks. `rate_limits` holds
    limits by tag, for tags without a limit in the workflow. `about` describes the worker in the
    registry; the worker fills in queues, concurrency, heartbeat interval and start time. A shutdown
    waits `shutdown_s` for running tasks. A cancelled handler may continue for `grace_s` before it
    is killed. An output above `inline_bytes_max` is offloaded to a blob. For `hand_back_s`, the
    worker hands tasks back that it can't run; 0 means that there is no other worker.
    """

    concurrency: int = 4
    claim_ahead: int = 0
    queues: tuple[str, ...] | None = None
    rate_limits: Mapping[str, RateLimit] = {}
    about: WorkerInfo = WorkerInfo()
    beat_s: float = 2.0
    shutdown_s: float = 30.0
    grace_s: float = 5.0
    inline_bytes_max: int = INLINE_BYTES_MAX
    hand_back_s: float = 0.0


DEFAULT_OPTIONS = WorkerOptions()


class Worker:
    """Claims tasks, runs their handlers and reports the results. `run` may be called once."""

    def __init__(
        self,
        tasks: TaskQueue,
        blobs: BlobStore,
        handlers: HandlerLookup,
        clock: Clock,
        telemetry: Telemetry,
        *,
        name: str,
        options: WorkerOptions = DEFAULT_OPTIONS,
        secrets: Secrets | None = None,
    ) -> None:
        if options.concurrency < 1:
            raise InputError(f"expected concurrency to be at least 1, got {options.concurrency}")
        self.name = name
        self._options = options
        self._tasks, self._handlers = tasks, handlers
        self._clock, self._telemetry = clock, telemetry
        held = self._held = HeldTasks()
        self._slots = Slots(options.concurrency, claim_ahead=options.claim_ahead)
        self._deadlines = Deadlines(clock)
        self._threads, self._processes = ThreadPool(name), ChildProcessPool()
        dependencies = WorkerDependencies(
            worker=name,
            tasks=tasks,
            clock=clock,
            telemetry=telemetry,
            store_retry=StoreRetry(clock, telemetry, name),
            secrets=secrets or NoSecrets(),
            refusals=TaskRefusals(
                tasks, clock, telemetry, worker=name, hand_back_s=options.hand_back_s
            ),
        )
        self._reporter = Reporter(dependencies, held)
        self._heartbeat = Heartbeat(
            dependencies,
            held,
            self._stop_dropped,
            drain=self._drain,
            about=replace(options.about, queues=options.queues, concurrency=options.concurrency),
            beat_s=options.beat_s,
        )
        self._claims = ClaimLoop(
            dependencies, self._slots, self._reporter, held=held, queues=options.queues
        )
        self._runners = RunnerPool(
            dependencies,
            self._slots,
            self._make_pipeline(blobs, dependencies),
            self._reporter,
            held=held,
            deadlines=self._deadlines,
            rate_limits=RateLimiter(tasks, options.rate_limits),
            short_calls=self._make_short_calls(),
            grace_s=options.grace_s,
        )
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._runner_tasks: list[asyncio.Task[None]] = []

    @property
    def holds(self) -> int:
        """The number of tasks between their claim and the acknowledged report."""
        return len(self._held)

    @property
    def abandoned_threads(self) -> int:
        """The number of threads that continue although their task has ended."""
        return self._held.abandoned_threads

    async def run(self, stop: asyncio.Event, stop_now: asyncio.Event | None = None) -> None:
        """Runs tasks until `stop` is set, then waits up to `shutdown_s` for the running tasks.

        `stop_now` ends the wait for running tasks. Tasks that have not ended by then are cancelled
        and reported to the store as lost. If the store asks the worker to drain, the worker sets
        `stop` itself, so that other waiters for `stop` end too.
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

    def _make_short_calls(self) -> ShortCalls:
        return ShortCalls(
            self._threads,
            self._slots,
            self._tasks,
            self._clock,
            on_abandoned=self._on_abandoned,
            on_returned=self._on_returned,
        )

    def _make_pipeline(self, blobs: BlobStore, dependencies: WorkerDependencies) -> AttemptPipeline:
        executor = Executor(
            self._threads,
            self._processes,
            self._slots,
            self._clock,
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
            on_suspect=self._on_suspect,
            inline_bytes_max=self._options.inline_bytes_max,
        )

    def _start_runner(self, group: asyncio.TaskGroup) -> None:
        if not self._runners.is_ending:  # a group that is being cancelled refuses new tasks
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
        await self._clock.wait(self._runners.is_quiet, self._options.grace_s)
        await self._flush()

    async def _wait_until_quiet(self, stop_now: asyncio.Event, group: asyncio.TaskGroup) -> None:
        """Returns when no task is running, when `stop_now` is set, or after `shutdown_s`."""
        either = asyncio.Event()

        async def relay(event: asyncio.Event) -> None:
            await self._clock.wait(event, None)
            either.set()

        relays = [group.create_task(relay(event)) for event in (stop_now, self._runners.is_quiet)]
        await self._clock.wait(either, self._options.shutdown_s)
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
        """Ends all runners, by force if the worker itself is cancelled or a loop has failed."""
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
        """Sets the deadlines of a run that waits, and lets the next run begin."""
        self._slots.note_suspended()
        if not run.is_watched:
            self._deadlines.arm(run, run.watch(since=self._clock.monotonic()))

    async def _on_suspect(self, run: TaskRun) -> None:
        self._slots.note_suspended()
        await self._runners.admit_suspect(run)

    def _on_abandoned(self, run: TaskRun) -> None:
        """Notes that a run ends while its thread continues.

        The run gives its slot back, unless too many such threads exist already.
        """
        run.is_abandoned = True
        run.keeps_slot = self.abandoned_threads >= ABANDONED_PER_SLOT * self._options.concurrency
        self._held.abandoned_threads += 1
        self._telemetry.event(
            THREAD_ABANDONED,
            worker=self.name,
            execution_id=run.token.execution_id,
            node_id=run.token.node_id,
            item=None if run.token.item == NO_ITEM else run.token.item,
            reason=str(run.stop_reason or "cancelled"),
            abandoned=self.abandoned_threads,
            keeps_slot=run.keeps_slot,
        )

    def _on_returned(self, run: TaskRun) -> None:
        self._held.abandoned_threads -= 1
        self._runners.report_returned(run)
        if run.keeps_slot:
            self._slots.release(has_waited=True)
            self._slots.wake_runner()

    def _emit(self, task: TaskMessage, measurement: Measurement) -> None:
        """Reports a metric of user code to telemetry.

        Always reports on the event loop, even if the user code runs in another thread.
        """
        if threading.get_ident() == self._thread_id:
            self._record_metric(task, measurement)
        elif self._loop is not None:
            with suppress(RuntimeError):  # the thread has outlived the event loop
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
