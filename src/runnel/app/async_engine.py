"""An engine inside a program: opens it, runs workflows in it, and drains it at the end."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

import msgspec

from runnel.app.embedded_engine import StopEvents
from runnel.app.engine_client import EngineClient, PlainWorkflow, WorkflowSource
from runnel.app.engine_options import EngineOptions
from runnel.app.run_arguments import (
    RunArguments,
    build_run_arguments,
    copy_own_labels,
    get_run_options,
)
from runnel.app.run_context import (
    BatchCall,
    SharedContext,
    build_call_batch,
    check_completed,
    check_not_ended,
    read_next,
    register_engine,
    run_batch,
    run_to_end,
    submit_to,
    wait_for_output,
)
from runnel.app.shared_resource import SharedResource
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.client.batch import BatchResult
from runnel.client.protocol import Operations, Schedules
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.engine.clock import RandomIdGenerator
from runnel.errors import EngineEndedError, InputError
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.views.execution import ExecutionView, HistoryEvent

P = ParamSpec("P")
R = TypeVar("R")


class AsyncEngine(EngineClient):
    """The asynchronous methods of `runnel.Engine`."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._shared: SharedContext | None = None
        self._settings = Settings()
        self._was_open = False
        self._pid = 0
        self._registration = ExitStack()
        # The decorated workflows of the apps, and those that this engine has run, by name. They
        # give results their types.
        self._known: dict[str, TracedWorkflow[..., Any]] = {}

    async def __aenter__(self) -> Self:
        if self._shared is not None:
            raise InputError("this engine is open already; open a second runnel.Engine() instead")
        settings = self._options.resolve_settings()
        self._known |= {workflow.name: workflow for workflow in self._options.list_workflows()}
        self._stops = StopEvents(asyncio.Event(), asyncio.Event())
        shared: SharedContext = SharedResource(
            partial(self._options.open, settings, self._stops), stays_open=True
        )
        await shared.start()
        self._shared, self._settings, self._pid = shared, settings, os.getpid()
        self._was_open = True
        self._registration.enter_context(register_engine(shared, settings))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drains the engine; raises the error that ended it early, unless the block raised one.

        If the block or the drain is cancelled, running tasks are stopped at once.
        """
        shared, self._shared = self._shared, None
        self._registration.close()
        if shared is None:
            return
        if kind is not None and issubclass(kind, asyncio.CancelledError | KeyboardInterrupt):
            self._stops.abort.set()
        try:
            await shared.close()
        except asyncio.CancelledError:
            self._stops.abort.set()
            await shared.close()
            raise
        if shared.error is not None and error is None:
            raise EngineEndedError(reason=shared.error) from shared.error

    @overload
    async def run(
        self, workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def run(
        self,
        workflow: PlainWorkflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> Any: ...
    async def run(self, workflow: WorkflowSource, /, *args: Any, **kwargs: Any) -> Any:
        """Runs an execution to its end and returns its result, as `runnel.run` does.

        A decorated workflow takes its arguments. Its options come from `workflow.run_options(...)`.
        Any other workflow takes one input, and the options `labels`, `priority` and
        `idempotency_key`. Raises WorkflowFailedError if the execution does not complete.
        """
        shared = self._require_open()
        data = await run_to_end(shared, self._build_arguments(workflow, args, kwargs))
        if isinstance(workflow, TracedWorkflow):
            return workflow.decode_result(data)
        return msgspec.json.decode(data)

    @overload
    async def submit(
        self, workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ExecutionId: ...
    @overload
    async def submit(
        self,
        workflow: PlainWorkflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId: ...
    async def submit(self, workflow: WorkflowSource, /, *args: Any, **kwargs: Any) -> ExecutionId:
        """Stores an execution and returns its id; the execution runs in the background.

        The execution is stored before this returns. The arguments are those of `run`.
        """
        shared = self._require_open()
        return await submit_to(shared, self._build_arguments(workflow, args, kwargs))

    async def run_many(
        self,
        workflow: WorkflowSource,
        inputs: Iterable[Json],
        *,
        name: str | None = None,
        id_field: str | None = None,
        in_flight: int | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        retry_failed: bool = False,
    ) -> AsyncGenerator[BatchResult, None]:
        """Runs an execution for each input, as `runnel.run_many` does; yields the results."""
        shared = self._require_open()
        call = BatchCall(
            name=name,
            id_field=id_field,
            in_flight=in_flight,
            labels=labels or {},
            priority=priority,
            retry_failed=retry_failed,
        )
        batch = await build_call_batch(workflow, self._resolve(workflow), inputs, call)
        async with aclosing(run_batch(shared, batch)) as results:
            async for result in results:
                yield result

    @overload
    async def result(
        self,
        execution_id: str,
        workflow: TracedWorkflow[..., R],
        *,
        timeout_s: float | None = None,
    ) -> R: ...
    @overload
    async def result(
        self, execution_id: str, workflow: None = None, *, timeout_s: float | None = None
    ) -> Any: ...
    async def result(
        self,
        execution_id: str,
        workflow: TracedWorkflow[..., Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Waits until an execution has completed, and returns its result.

        The result has the type that `workflow` returns by its annotation. By default, that is the
        workflow of this name that the engine has started; of any other workflow, the result is
        plain JSON. Raises WorkflowFailedError, NotFoundError, and TimeoutError after `timeout_s`.
        """
        shared = self._require_open()
        waiting = wait_for_output(shared, ExecutionId(execution_id))
        if timeout_s is None:
            header, data = await waiting
        else:
            header, data = await shared.value.clock.run_within(timeout_s, waiting)
        check_completed(header)
        known = workflow or self._known.get(header.workflow)
        return msgspec.json.decode(data) if known is None else known.decode_result(data)

    async def wait(self, execution_id: str, *, timeout_s: float | None = None) -> "ExecutionView":
        """Waits until the execution is final, and returns it.

        Raises NotFoundError, and TimeoutError after `timeout_s`.
        """
        shared, id_ = self._require_open(), ExecutionId(execution_id)
        work = shared.value.client.wait_for_end(id_, timeout_s=timeout_s)
        await shared.call_until_ended(work, execution_id)
        return await shared.value.client.get(id_)

    async def follow(self, execution_id: str, *, after: int = 0) -> "AsyncIterator[HistoryEvent]":
        """Yields the events of an execution as they happen, until it is final.

        Raises NotFoundError. `after` is the number of events to skip.
        """
        shared = self._require_open()
        events = shared.value.client.follow(ExecutionId(execution_id), after=after)
        while True:
            event = await shared.call_until_ended(read_next(events), execution_id)
            if event is None:
                return
            yield event

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store: `add`, `list`, `get`, `pause` and `remove`."""
        from runnel.triggers.schedule_store import ScheduleStore, StoreSchedules

        context = self._require_open().value
        store = ScheduleStore(context.backend, context.clock, RandomIdGenerator())
        return StoreSchedules(store, context.clock)

    @property
    def operations(self) -> Operations:
        """The workers, queues and partitions of the store."""
        from runnel.client.operations import StoreOperations

        context = self._require_open().value
        return StoreOperations(context.backend, context.clock, self._settings)

    def _require_open(self) -> SharedContext:
        """Returns the open engine; raises InputError or EngineEndedError."""
        shared = self._shared
        if shared is None:
            state = "is closed" if self._was_open else "is not open"
            raise InputError(
                f"this engine {state}: use it inside 'async with runnel.Engine() as engine:'"
            )
        if self._pid != os.getpid():
            raise InputError(
                f"this engine belongs to process {self._pid}, from which this process was forked; "
                "open a runnel.Engine() after the fork"
            )
        if asyncio.get_running_loop() is not shared.loop:
            raise InputError(
                "this engine belongs to another event loop: call it there, or use runnel.run and "
                "runnel.submit, which work from any thread"
            )
        check_not_ended(shared)
        return shared

    def _get_client(self) -> StoreClient:
        return self._require_open().value.client

    def _get_settings(self) -> Settings:
        return self._settings

    def _build_arguments(
        self, workflow: WorkflowSource, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> RunArguments:
        if not isinstance(workflow, TracedWorkflow):
            return self._build_plain_arguments(workflow, *args, **kwargs)
        options = get_run_options(workflow)
        for name in ("data_dir", "concurrency"):
            if getattr(options, name) is not None:
                raise InputError(
                    f"run_options({name}=...) does not change an open engine: write "
                    f"runnel.Engine({name}=...)"
                )
        self._known[workflow.name] = workflow
        return build_run_arguments(workflow, args, kwargs, self._settings)

    def _build_plain_arguments(
        self,
        workflow: PlainWorkflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> RunArguments:
        source = self._resolve(workflow)
        return RunArguments(
            workflow=source.workflow,
            input=input,
            labels={**source.labels, **copy_own_labels(labels or {})},
            priority=priority,
            key=idempotency_key,
            settings=source.settings,
        )
