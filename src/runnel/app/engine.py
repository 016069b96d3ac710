"""`runnel.Engine`, its blocking form for `with` blocks, and `runnel.lifespan` for web services."""

import asyncio
import atexit
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from runnel.app.async_engine import AsyncEngine
from runnel.app.engine_client import PlainWorkflow, WorkflowSource
from runnel.app.engine_options import EngineOptions
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.client.sync_wrappers import (
    BlockingMethod,
    IteratingMethod,
    SyncBulk,
    SyncDeadLetters,
    SyncOperations,
    SyncSchedules,
    SyncValues,
    SyncWorkflows,
    SyncWrapper,
)
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


class SyncEngine(SyncWrapper[AsyncEngine]):
    """The blocking methods of an open `Engine`, for any number of threads."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.client = engine
        self._exit_stack = ExitStack()
        self.portal: BlockingPortal = self._exit_stack.enter_context(
            start_blocking_portal(name="runnel-engine")
        )
        try:
            self.portal.call(engine.__aenter__)
        except BaseException:
            self._exit_stack.close()
            raise
        read = partial(self.portal.call, getattr, engine)
        self.library = SyncWorkflows(self.portal, read("library"))
        self.dead_letters = SyncDeadLetters(self.portal, read("dead_letters"))
        self.many = SyncBulk(self.portal, read("many"))
        self.values = SyncValues(self.portal, read("values"))
        self.schedules = SyncSchedules(self.portal, read("schedules"))
        self.operations = SyncOperations(self.portal, read("operations"))
        self._is_open = True
        atexit.register(self.close)

    def close(self, error: BaseException | None = None) -> None:
        """Drains and closes the engine; a second call has no effect.

        Raises EngineEndedError if the engine had failed, unless `error` ends the program's block.
        """
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.close)
        with self._exit_stack:
            kind = None if error is None else type(error)
            self.portal.call(self.client.__aexit__, kind, error, None)

    @overload
    def run(self, workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(
        self,
        workflow: PlainWorkflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> Any: ...
    def run(self, workflow: WorkflowSource, /, *args: Any, **kwargs: Any) -> Any:
        return self.call(partial(self.client.run, workflow, *args, **kwargs))

    @overload
    def submit(
        self, workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ExecutionId: ...
    @overload
    def submit(
        self,
        workflow: PlainWorkflow,
        input: Json = None,
        /,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId: ...
    def submit(self, workflow: WorkflowSource, /, *args: Any, **kwargs: Any) -> ExecutionId:
        return self.call(partial(self.client.submit, workflow, *args, **kwargs))

    @overload
    def result(
        self,
        execution_id: str,
        workflow: TracedWorkflow[..., R],
        *,
        timeout_s: float | None = None,
    ) -> R: ...
    @overload
    def result(
        self, execution_id: str, workflow: None = None, *, timeout_s: float | None = None
    ) -> Any: ...
    def result(
        self,
        execution_id: str,
        workflow: TracedWorkflow[..., Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        return self.call(partial(self.client.result, execution_id, workflow, timeout_s=timeout_s))

    submit_many = BlockingMethod(AsyncEngine.submit_many)
    run_many = IteratingMethod(AsyncEngine.run_many)
    hold = BlockingMethod(AsyncEngine.hold)
    trigger = BlockingMethod(AsyncEngine.trigger)
    wait = BlockingMethod(AsyncEngine.wait)
    get = BlockingMethod(AsyncEngine.get)
    node = BlockingMethod(AsyncEngine.node)
    history = BlockingMethod(AsyncEngine.history)
    follow = IteratingMethod(AsyncEngine.follow)
    list_executions = BlockingMethod(AsyncEngine.list_executions)
    executions = IteratingMethod(AsyncEngine.executions)
    count_executions = BlockingMethod(AsyncEngine.count_executions)
    find = BlockingMethod(AsyncEngine.find)
    summaries = BlockingMethod(AsyncEngine.summaries)
    cancel = BlockingMethod(AsyncEngine.cancel)
    signal = BlockingMethod(AsyncEngine.signal)
    rerun = BlockingMethod(AsyncEngine.rerun)
    store = BlockingMethod(AsyncEngine.store)


class Engine(AsyncEngine):
    """Runs workflows inside your program, and resumes by itself what a killed process left.

        async with runnel.Engine() as engine:
            execution = await engine.submit(report, "a/b")
            print(await engine.result(execution))

    Without arguments, the engine uses the settings: the data directory, or the servers of
    `REDIS_URL`. `data_dir` and `redis_url` select another store. `concurrency` is the number of
    tasks that run at a time. With `schedules`, the engine also fires the schedules of a data
    directory. `with runnel.Engine() as engine` has the same methods without `await`, for code
    without an event loop.

    On a data directory, the engine runs all tasks in this process. Several processes may share the
    directory: if one dies, an engine of another one takes over its executions within seconds. The
    modules `apps` add their handlers.

    On servers, the engine is a client, and the orchestrators and workers there run everything. With
    `apps`, this process also runs an orchestrator, and a worker for the tasks of these modules.
    `runs_tasks` decides that instead, if it is given.

    At its end, the engine waits for running tasks, at most for `WORKER_GRACEFUL_SHUTDOWN_TIMEOUT`.
    The next engine resumes the rest. If the engine itself fails, each call raises EngineEndedError.
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        redis_url: str | None = None,
        apps: Sequence[str] = (),
        concurrency: int | None = None,
        runs_tasks: bool | None = None,
        schedules: bool = False,
    ) -> None:
        if data_dir is not None and redis_url is not None:
            raise InputError("data_dir and redis_url name two stores; give only one of them")
        if isinstance(apps, str):
            raise InputError(f"apps: expected a list of modules, such as ['{apps}'], got a text")
        if concurrency is not None and concurrency < 1:
            raise InputError(f"concurrency: expected at least 1, got {concurrency}")
        super().__init__(
            EngineOptions(
                data_dir=None if data_dir is None else Path(data_dir),
                redis_url=redis_url,
                apps=tuple(apps),
                concurrency=concurrency,
                runs_tasks=runs_tasks,
                fires_schedules=schedules,
            )
        )
        self._sync: SyncEngine | None = None

    def start(self) -> SyncEngine:
        """Opens the engine on a thread of its own; returns it with blocking methods.

        The program closes the engine with `close()`. The end of the program closes it too.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._sync = SyncEngine(self)
            return self._sync
        raise InputError(
            "an event loop is running in this thread: write 'async with runnel.Engine() as engine:'"
        )

    def __enter__(self) -> SyncEngine:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sync is not None:
            self._sync.close(error)


Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


def lifespan(
    wrapped: Lifespan | None = None,
    *,
    data_dir: str | Path | None = None,
    redis_url: str | None = None,
    apps: Sequence[str] = (),
    concurrency: int | None = None,
    runs_tasks: bool | None = None,
    schedules: bool = False,
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Returns a lifespan for FastAPI or Starlette that opens an `Engine` with these arguments.

        app = FastAPI(lifespan=runnel.lifespan())

    Each request has the engine as `request.state.engine`. `wrapped` is a lifespan of your own: it
    begins after the engine and ends before it, and its state is added. The engine is also
    `app.state.engine`, so that your lifespan can use it.
    """

    @asynccontextmanager
    async def open_engine(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        engine = Engine(
            data_dir=data_dir,
            redis_url=redis_url,
            apps=apps,
            concurrency=concurrency,
            runs_tasks=runs_tasks,
            schedules=schedules,
        )
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(engine)
            app.state.engine = engine
            state = None if wrapped is None else await opened.enter_async_context(wrapped(app))
            yield {"engine": engine, **(state or {})}

    return open_engine
