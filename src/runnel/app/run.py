"""`runnel.run`, `run_many` and `submit`: run workflows in this process, or on servers if set.

The functions use the `runnel.Engine` that is open in this process. If none is open, concurrent
calls share an engine, which closes after the last call.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import msgspec

from runnel.app.embedded_engine import run_engine
from runnel.app.process_signals import is_serving_engine
from runnel.app.run_arguments import (
    RunArguments,
    build_run_arguments,
    get_run_options,
    resolve_source,
)
from runnel.app.run_context import (
    BatchCall,
    RunContext,
    build_call_batch,
    find_open_engine,
    iter_results,
    run_batch,
    run_to_end,
    store_execution,
    submit_to,
)
from runnel.app.shared_resource import SharedResource, SharedResourcePool
from runnel.app.stores import open_store_session
from runnel.app.wiring import build_engine
from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import SOURCE_LABEL
from runnel.client.batch import BatchResult, find_abandoned_partitions
from runnel.client.idempotency import derive_execution_id
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.ports import Backend
from runnel.ports.store import Submission
from runnel.settings.model import Settings

P = ParamSpec("P")
R = TypeVar("R")


@overload
async def run(workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
async def run(
    workflow: Workflow | WorkflowDAG, input: Mapping[str, Any] | None = None, /, **kwargs: Any
) -> Any: ...
async def run(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG, /, *args: Any, **kwargs: Any
) -> Any:
    """Runs an execution to its end and returns its result.

    The result of a decorated workflow has the type that the function returns by its annotation. Any
    other result is decoded from JSON.

    A workflow file takes its input as one object, as names, or both:
    `run(load_file("flow.yaml"), {"user": "Ada"})` equals `run(load_file("flow.yaml"), user="Ada")`.
    Everything is stored in the data directory (`.runnel`), or on servers if the settings name them.
    Raises WorkflowFailedError; InputError for a wrong input, before anything runs. If this process
    is killed or the call is cancelled, `runnel resume` resumes the execution. So does another run
    with the same key (`workflow.run_options(key=...)`).

    A task that calls `run` gives its worker slot to other tasks, and takes a slot back after the
    execution has ended. Raises InputError if such tasks are nested too deeply. If too many tasks of
    the worker wait, raises TooManyWaitingTasksError, and the task begins again 5 s later.
    """
    arguments = build_run_arguments(workflow, args, kwargs)
    opened = find_open_engine(arguments.settings, get_run_options(workflow))
    if opened is not None:
        data = await run_to_end(opened, arguments)
    else:
        async with _use_context(arguments) as shared:
            await shared.wait_until_opened()
            data = await run_to_end(shared, arguments)
    if isinstance(workflow, TracedWorkflow):
        return workflow.decode_result(data)
    return msgspec.json.decode(data)


@overload
async def submit(workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> str: ...
@overload
async def submit(
    workflow: Workflow | WorkflowDAG, input: Mapping[str, Any] | None = None, /, **kwargs: Any
) -> str: ...
async def submit(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG, /, *args: Any, **kwargs: Any
) -> str:
    """Stores an execution and returns its id, without waiting for the execution.

    Workers run it if the settings name servers. Otherwise these run it, on the same data directory:
    an engine that `runnel.run` has open in this process, the process of `runnel dev`, or else the
    next `runnel resume`. `runnel.run` does not wait for it: if the engine closes before the
    execution ends, `runnel resume` resumes the execution.
    """
    arguments = build_run_arguments(workflow, args, kwargs)
    opened = find_open_engine(arguments.settings, get_run_options(workflow))
    if opened is not None:
        return await submit_to(opened, arguments)
    pool = _find_pool_for_submit(arguments.settings)
    if pool is not None:
        async with _use_context(arguments, pool) as shared:
            await shared.wait_until_opened()
            return await submit_to(shared, arguments)
    engine = await build_engine(arguments.settings, is_brief=True)
    try:
        source = arguments.labels.get(SOURCE_LABEL, "")
        submits = Submission(joins=_runs_submitted_executions, source=source)
        await engine.backend.claim_home_partition(engine.name, submits=submits)
        return await store_execution(engine, arguments)
    finally:
        await engine.backend.close()


async def run_many(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG,
    inputs: Iterable[Json],
    /,
    *,
    name: str | None = None,
    id_field: str | None = None,
    in_flight: int | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    retry_failed: bool = False,
) -> AsyncGenerator[BatchResult, None]:
    """Runs an execution for each input; yields each result when its execution has ended.

    The input of a decorated workflow is an object of its arguments. All inputs are checked before
    the first execution starts: InvalidInputError lists the problems of all inputs. A failed
    execution is a result, not an error.

    At most `in_flight` executions are unfinished at a time: by default 100 on servers, else twice
    the concurrency. Executions that wait for a signal do not count. New executions start only while
    the caller iterates.

    A later call with the same `name` continues the batch, as `runnel batch --name` does: inputs
    with an execution do not run again, and failed ones are rerun only with `retry_failed`.
    `id_field` names the field that identifies an input, such as `order.number`; by default, its
    content does.
    """
    call = BatchCall(
        name=name,
        id_field=id_field,
        in_flight=in_flight,
        labels=labels or {},
        priority=priority,
        retry_failed=retry_failed,
    )
    source = resolve_source(workflow)
    batch = await build_call_batch(workflow, source, inputs, call)
    opened = find_open_engine(source.settings, get_run_options(workflow))
    if opened is not None:
        async with aclosing(iter_results(opened, run_batch(opened, batch))) as results:
            async for result in results:
                yield result
        return

    def open_context() -> AbstractAsyncContextManager[RunContext]:
        return _open_context(
            source.settings, lambda backend: find_abandoned_partitions(backend, batch)
        )

    async with _get_pool(source.settings).use(open_context) as shared:
        await shared.wait_until_opened()
        async with aclosing(run_batch(shared, batch)) as results:
            async for result in results:
                yield result


# By data directory (None for servers) and settings.
_pools: dict[tuple[Path | None, bytes], SharedResourcePool[RunContext]] = {}
# The names of the engines that `run` has open, on any event loop of this process.
_open_engines: set[str] = set()


def _get_pool(settings: Settings) -> SharedResourcePool[RunContext]:
    """Returns the same pool for equal settings, so that concurrent calls share one engine."""
    data_dir = None if settings.has_redis else settings.data_dir.absolute()
    key = data_dir, msgspec.json.encode(settings, enc_hook=str)
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = SharedResourcePool()
    return pool


FindPartitions: TypeAlias = Callable[[Backend], Awaitable[frozenset[int]]]


def _find_pool_for_submit(settings: Settings) -> SharedResourcePool[RunContext] | None:
    """Returns the pool of the servers, or one with an engine on this event loop; None if none."""
    if settings.has_redis:
        return _get_pool(settings)
    data_dir = settings.data_dir.absolute()
    pools = [pool for (folder, _), pool in list(_pools.items()) if folder == data_dir]
    return next((pool for pool in pools if pool.is_open()), None)


def _runs_submitted_executions(engine_name: str) -> bool:
    return engine_name in _open_engines or is_serving_engine(engine_name)


def _use_context(
    arguments: RunArguments, pool: SharedResourcePool[RunContext] | None = None
) -> AbstractAsyncContextManager[SharedResource[RunContext]]:
    async def find_partition(backend: Backend) -> frozenset[int]:
        return await _find_abandoned_partition(backend, arguments)

    settings = arguments.settings
    chosen = pool or _get_pool(settings)
    return chosen.use(lambda: _open_context(settings, find_partition))


@asynccontextmanager
async def _open_context(
    settings: Settings, find_partitions: FindPartitions
) -> AsyncIterator[RunContext]:
    """Opens a session on servers, or an engine that adopts the partitions that were found."""
    if settings.has_redis:
        async with open_store_session(settings) as session:
            yield session
        return
    engine = await build_engine(settings, is_brief=True)
    async with run_engine(engine, adopts=await find_partitions(engine.backend)):
        _open_engines.add(engine.name)
        try:
            yield engine
        finally:
            _open_engines.discard(engine.name)


async def _find_abandoned_partition(backend: Backend, arguments: RunArguments) -> frozenset[int]:
    """Returns the partition of an earlier run with the same key, if no living process owns it."""
    if arguments.key is None:
        return frozenset()
    execution_id = derive_execution_id(arguments.workflow.name, arguments.key)
    if await backend.archive.get_header(execution_id) is None:
        return frozenset()
    partition = await backend.store.route(execution_id)
    return frozenset() if await backend.store.observe(partition) else frozenset({partition})
