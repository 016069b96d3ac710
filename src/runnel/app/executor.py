"""Runs a WorkflowDAG of Python functions in this process, on an embedded engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, run_engine
from runnel.app.live_execution import LiveExecution, WorkflowResult, build_workflow_result
from runnel.app.rate_limiter import TokenBucketRateLimiter
from runnel.app.shared_resource import SharedResource, SharedResourcePool
from runnel.app.step_cache import MemoryStepCache, StepResultCache, StoredStepCache
from runnel.authoring.builder import STEP_HANDLER, Step, WorkflowDAG
from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.authoring.context import STEP_OUTPUTS, Context
from runnel.authoring.registry import HandlerRegistry
from runnel.backends.memory import MemoryBackend
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.core.commands import CancelExecution
from runnel.core.ids import ExecutionId
from runnel.core.retry import RetryPolicy
from runnel.core.values import Json
from runnel.core.workflow import RateLimit, Workflow
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker.slots import TaskSlot, current_slot
from runnel.errors import BrokenInvariantError, EngineEndedError, InputError, UnknownExecutionError
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.telemetry.metrics import MetricsTelemetry

# Concurrent `execute` calls of one executor share an engine per event loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """The options of a WorkflowExecutor. `data_dir` None keeps everything in memory.

    `cache` has the results of steps with a StepCache, if there is no `data_dir`.
    """

    max_concurrency: int = 4
    limiters: Mapping[str, TokenBucketRateLimiter] = field(default_factory=dict)
    data_dir: Path | None = None
    clock: Clock
    metrics: MetricsTelemetry | None = None
    cache: MemoryStepCache


class StepHost:
    """An engine whose tasks call the functions of the executions that this process serves."""

    def __init__(self, options: ExecutorOptions) -> None:
        self._options = options
        self._live_executions: dict[str, LiveExecution] = {}
        self._engine: EmbeddedEngine | None = None
        self._has_ended = False

    @property
    def engine(self) -> EmbeddedEngine:
        if self._engine is None:
            raise BrokenInvariantError("the engine was used before it was opened")
        return self._engine

    @property
    def cache(self) -> StepResultCache:
        if self._options.data_dir is None:
            return self._options.cache
        return StoredStepCache(self.engine.backend.tasks)

    @asynccontextmanager
    async def run(self) -> AsyncIterator["StepHost"]:
        try:
            self._engine = await self._open_engine()
            self._engine.event_bus.watch(self._on_event)
            if self._options.metrics is not None:
                self._engine.event_bus.add_sink(self._options.metrics)
            async with run_engine(self._engine):
                yield self
        finally:
            self._has_ended = True
            for live in self._live_executions.values():
                live.finished.set()

    @contextmanager
    def serve(self, execution_id: str, live: LiveExecution) -> Iterator[None]:
        """Makes tasks of the execution call the functions of `live` inside the block."""
        self._live_executions[execution_id] = live
        if self._has_ended:
            live.finished.set()
        try:
            yield
        finally:
            del self._live_executions[execution_id]

    async def _open_engine(self) -> EmbeddedEngine:
        options = self._options
        clock_and_ids = ClockAndIds(options.clock, RandomIdGenerator())
        settings = Settings(worker_concurrency=options.max_concurrency, shutdown_timeout_s=0.0)
        take_token = self._take_token if options.limiters else None
        backend: Backend
        if options.data_dir is None:
            backend = MemoryBackend(clock_and_ids.clock, clock_and_ids.ids, take_token=take_token)
        else:
            backend = await SqliteBackend.open(
                options.data_dir,
                clock=clock_and_ids.clock,
                ids=clock_and_ids.ids,
                durability=settings.durability,
                take_token=take_token,
            )
        limits = {
            tag: RateLimit(rate_per_second=limiter.rate_per_second, burst=limiter.burst)
            for tag, limiter in options.limiters.items()
        }
        return EmbeddedEngine(
            backend, self._build_registry(), clock_and_ids, settings, rate_limits=limits
        )

    async def _take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        """Takes a token of a limiter, which several executors of this process may share."""
        return self._options.limiters[tag].take(wait_s_max=wait_s_max)

    def _build_registry(self) -> HandlerRegistry:
        registry = HandlerRegistry()
        registry.register_plan(STEP_HANDLER, self._plan, source="WorkflowDAG")
        return registry

    def _plan(self, config: Json) -> FunctionCall:
        mode = Mode(config["mode"])
        function = self._run_step if mode is Mode.LOOP else self._run_step_in_thread
        return FunctionCall(function=function, mode=mode, place=ContextPlace.LAST)

    async def _run_step(self, task: Context) -> Json:
        return await self._find_live_execution(task).run(task)

    def _run_step_in_thread(self, task: Context) -> Json:
        return self._find_live_execution(task).run_in_thread(task)

    def find_caller(self) -> TaskSlot | None:
        """Returns the slot of the step that calls `execute`, if this host runs that step."""
        slot = current_slot.get()
        return slot if slot is not None and slot.execution_id in self._live_executions else None

    def _find_live_execution(self, task: Context) -> LiveExecution:
        live = self._live_executions.get(task.execution_id)
        if live is None:
            raise UnknownExecutionError(task.execution_id)
        return live

    def _on_event(self, event: CommittedEvents | StartedTask) -> None:
        if isinstance(event, StartedTask):
            live = self._live_executions.get(event.token.execution_id)
            if live is not None:
                live.record_start(event.token.node_id, event.at)
        elif (live := self._live_executions.get(event.execution_id)) is not None:
            live.apply_events(event.events)


class MetricRegistry(Protocol):
    """A registry of prometheus_client, such as `prometheus_client.REGISTRY`."""

    def register(self, collector: Any) -> None: ...


class WorkflowExecutor:
    """Runs workflows of Python functions, at most `max_concurrency` steps at a time.

    All `execute` calls on one event loop share this limit. A rate limiter applies to the steps with
    its name as `resource_tag`. `retry` is the policy of steps without their own. Steps get the
    results of other steps as the same Python objects, of any type.

    With `data_dir` everything is also stored there, for `runnel list` and `runnel show`. The
    context and all results must be JSON then. `runnel resume` can't resume such executions.

    With `registry`, such as `prometheus_client.REGISTRY`, the executor registers its metrics there:
    executions, steps by outcome, durations, retries, and what steps measure with
    `ctx.task.metrics`.
    """

    def __init__(
        self,
        max_concurrency: int = 4,
        rate_limiters: Mapping[str, TokenBucketRateLimiter] | None = None,
        *,
        retry: RetryPolicy | None = None,
        data_dir: str | Path | None = None,
        registry: MetricRegistry | None = None,
        clock: Clock | None = None,
    ) -> None:
        limiters = dict(rate_limiters or {})
        _check_arguments(max_concurrency, limiters)
        self._retry = retry
        self._is_durable = data_dir is not None
        clock = clock or RealClock()
        self._options = ExecutorOptions(
            max_concurrency=max_concurrency,
            limiters=limiters,
            data_dir=None if data_dir is None else Path(data_dir),
            clock=clock,
            metrics=None if registry is None else _register_metrics(registry),
            cache=MemoryStepCache(clock),
        )
        self._hosts: SharedResourcePool[StepHost] = SharedResourcePool()

    async def execute(
        self, dag: WorkflowDAG, context: Mapping[str, Any] | None = None
    ) -> WorkflowResult:
        """Returns when every step has settled; the result contains the failures of steps.

        Raises InvalidWorkflowError before anything runs. Cancelling the caller cancels the
        execution: async steps have ended when this raises CancelledError. Functions in threads
        can't be cancelled, but can check `ctx.task.cancelled`.
        """
        if dag.nodes:
            raise InputError(
                f"node {next(iter(dag.nodes))!r} names a handler, but WorkflowExecutor runs "
                "functions only: write 'await runnel.run(dag, ...)', or use add_step"
            )
        workflow = dag.to_workflow(retry=self._retry)
        input_values = _check_context(context)
        async with self._hosts.use(lambda: StepHost(self._options).run()) as shared:
            return await self._run(shared, workflow, dag.steps, input_values)

    def execute_sync(
        self, dag: WorkflowDAG, context: Mapping[str, Any] | None = None
    ) -> WorkflowResult:
        """Calls `execute` in an event loop of its own, for scripts and Celery tasks."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.execute(dag, context))
        raise InputError(
            "an event loop is running in this thread: use 'await executor.execute(...)'"
        )

    async def _run(
        self,
        shared: SharedResource[StepHost],
        workflow: Workflow,
        steps: Mapping[str, Step],
        input_values: dict[str, Any],
    ) -> WorkflowResult:
        host = await shared.wait_until_opened()
        engine = host.engine
        live = LiveExecution(steps, input_values, is_durable=self._is_durable, cache=host.cache)
        stored = input_values if self._is_durable else {}
        caller = host.find_caller()
        async with nullcontext() if caller is None else caller.lend():
            execution_id = await engine.client.submit(workflow, stored)
            with host.serve(execution_id, live):
                await _wait_until_finished(engine, execution_id, live)
        execution = await engine.client.load(execution_id)
        if not execution.is_final:
            raise EngineEndedError(execution_id) from shared.error
        live.catch_up(execution)
        return build_workflow_result(execution, live)


def _register_metrics(registry: MetricRegistry) -> MetricsTelemetry:
    from runnel.telemetry.prometheus import FamilyCollector  # most programs have no registry

    metrics = MetricsTelemetry()
    registry.register(FamilyCollector([metrics.collect_families]))
    return metrics


async def _wait_until_finished(
    engine: EmbeddedEngine, execution_id: ExecutionId, live: LiveExecution
) -> None:
    """Waits for the end of the execution; if cancelled, cancels it and waits for its steps."""
    async with asyncio.TaskGroup() as group:
        following = group.create_task(_signal_when_final(engine, execution_id, live))
        try:
            await live.finished.wait()
        except asyncio.CancelledError:
            cancelling = group.create_task(_cancel(engine, execution_id))
            await live.finished.wait()
            cancelling.cancel()  # the engine may have stopped before it read the command
            raise
        finally:
            following.cancel()
            await live.idle.wait()


async def _cancel(engine: EmbeddedEngine, execution_id: ExecutionId) -> None:
    command = CancelExecution(execution_id=execution_id, reason="execute was cancelled")
    store_retry = StoreRetry(engine.clock, engine.event_bus, engine.name)
    await store_retry.run(lambda: engine.backend.mailbox.send([command]), "cancel")


async def _signal_when_final(
    engine: EmbeddedEngine, execution_id: ExecutionId, live: LiveExecution
) -> None:
    store_retry = StoreRetry(engine.clock, engine.event_bus, engine.name)
    try:
        await store_retry.run(lambda: engine.client.wait_for_end(execution_id), "wait")
    finally:
        live.finished.set()


def _check_arguments(max_concurrency: Any, limiters: Mapping[str, object]) -> None:
    if not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise InputError(
            f"expected max_concurrency to be a whole number of at least 1, got {max_concurrency}"
        )
    for tag, limiter in limiters.items():
        if not isinstance(limiter, TokenBucketRateLimiter):
            raise InputError(
                f"rate_limiters['{tag}']: expected a TokenBucketRateLimiter, got {limiter!r}"
            )


def _check_context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    input_values = dict(context or {})
    if STEP_OUTPUTS in input_values:
        raise InputError(
            f"context: the key '{STEP_OUTPUTS}' is reserved for outputs of steps; rename it"
        )
    return input_values
