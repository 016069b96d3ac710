"""`runnel.run`, `run_many` and `submit`: run workflows in this process, or on servers if set."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import msgspec

from runnel.app.engine import Engine, SharedResource, SharedResourcePool, run_engine
from runnel.app.process_signals import is_serving_engine
from runnel.app.stores import StoreSession, open_store_session
from runnel.app.wiring import build_engine
from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.decorators.source_location import locate_user_code
from runnel.authoring.decorators.trace import get_current_trace
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import (
    MAIN_MODULE_PREFIX,
    SOURCE_LABEL,
    find_import_folder,
    get_main_module_name,
)
from runnel.authoring.payloads import RESERVED_LABEL_PREFIX
from runnel.client.batch import (
    IN_FLIGHT_MAX,
    IN_FLIGHT_PER_SLOT,
    Batch,
    BatchFeeder,
    BatchOptions,
    BatchResult,
    build_batch,
    find_abandoned_partitions,
    load_result,
)
from runnel.client.idempotency import derive_execution_id
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.message_text import describe_value, quote_name
from runnel.core.states import ExecutionState
from runnel.core.validation.structure import CHILD_DEPTH_MAX
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator
from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker.slots import TaskSlot, current_slot
from runnel.errors import EngineEndedError, InputError, WorkflowFailedError
from runnel.ports import Backend
from runnel.ports.store import ExecutionHeader, Submission
from runnel.settings import override_settings, read_settings
from runnel.settings.model import Settings

P = ParamSpec("P")
R = TypeVar("R")

# How often this process checks that the owner of an execution is still alive.
OWNER_POLL_INTERVAL_S = 0.5

# Nesting: a task runs an execution, whose task runs an execution, and so on. The label counts the
# levels, because each execution may run in another process.
NESTING_LABEL = "runnel.nesting"
NESTING_MAX = CHILD_DEPTH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a decorated workflow.

    `key` names one execution of the workflow: another run with the same key returns its result, or
    resumes it. `data_dir` selects the embedded engine even if servers are set. `data_dir` and
    `concurrency` default to the settings.
    """

    key: str | None = None
    data_dir: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    priority: int | None = None


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
    arguments = _build_run_arguments(workflow, args, kwargs)
    slot, level = current_slot.get(), 0
    async with _use_context(arguments) as shared:
        context = await shared.wait_until_opened()
        if slot is not None:
            level = await _choose_nesting_level(context, arguments.workflow.name, slot)
            label = {NESTING_LABEL: str(level)}
            arguments = replace(arguments, labels={**arguments.labels, **label})
        async with nullcontext() if slot is None else slot.lend(level):
            execution_id = await _submit(context, arguments)
            try:
                header = await _wait_until_final(shared, context, execution_id)
            except asyncio.CancelledError:
                # The tasks of a cancelled call run again later: nothing waits for them now.
                if isinstance(context, Engine) and shared.users == 1:
                    context.stops.abort.set()
                raise
        if header.state is not ExecutionState.COMPLETED:
            raise WorkflowFailedError(
                execution_id, header.workflow, status=header.state, error=header.error
            )
        data = await _load_output(context, execution_id)
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
    arguments = _build_run_arguments(workflow, args, kwargs)
    pool = _find_pool_for_submit(arguments.settings)
    if pool is not None:
        async with _use_context(arguments, pool) as shared:
            return await _submit(await shared.wait_until_opened(), arguments)
    engine = await build_engine(arguments.settings)
    try:
        source = arguments.labels.get(SOURCE_LABEL, "")
        submits = Submission(joins=_runs_submitted_executions, source=source)
        await engine.backend.claim_home_partition(engine.name, submits=submits)
        return await _submit(engine, arguments)
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
    source = _resolve_source(workflow)
    settings = source.settings
    if source.key is not None:
        raise InputError("run_many: give the batch a name=, instead of run_options(key=...)")
    batch = build_batch(
        source.workflow,
        inputs,
        BatchOptions(
            name=name,
            id_field=id_field,
            in_flight=_choose_in_flight(settings) if in_flight is None else in_flight,
            priority=source.priority if priority is None else priority,
            retry_failed=retry_failed,
        ),
        labels={**source.labels, **_copy_own_labels(labels or {})},
        default_name=RandomIdGenerator().execution_id(),
    )
    async with aclosing(_run_batch(batch, settings)) as results:
        async for result in results:
            yield result


async def _run_batch(batch: Batch, settings: Settings) -> AsyncGenerator[BatchResult, None]:
    slot, level = current_slot.get(), 0

    def open_context() -> AbstractAsyncContextManager[RunContext]:
        return _open_context(settings, lambda backend: find_abandoned_partitions(backend, batch))

    async with _get_pool(settings).use(open_context) as shared:
        context = await shared.wait_until_opened()
        if slot is not None:
            level = await _choose_nesting_level(context, batch.workflow.name, slot)
            batch = replace(batch, labels={**batch.labels, NESTING_LABEL: str(level)})
        feeder = BatchFeeder(
            batch,
            context.client,
            context.clock,
            event_bus=context.event_bus,
            adopt=context.adopt_if_free if isinstance(context, Engine) else None,
        )
        async with (
            nullcontext() if slot is None else slot.lend(level),
            aclosing(feeder.run(shared.ended)) as outcomes,
        ):
            try:
                async for outcome in outcomes:
                    yield await load_result(context.client, outcome)
            except (asyncio.CancelledError, GeneratorExit):
                # The tasks run again in a later call with the same name: nothing waits for them.
                if isinstance(context, Engine) and shared.users == 1:
                    context.stops.abort.set()
                raise


def _choose_in_flight(settings: Settings) -> int:
    return IN_FLIGHT_MAX if settings.has_redis else IN_FLIGHT_PER_SLOT * settings.worker_concurrency


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """A workflow to run, with its own options."""

    workflow: Workflow
    labels: Mapping[str, str]
    priority: int | None
    key: str | None
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments(RunSource):
    input: Json


RunContext: TypeAlias = Engine | StoreSession
"""The engine of this process, or a session on servers whose workers run the executions."""


def _build_run_arguments(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> RunArguments:
    source = _resolve_source(workflow)
    if isinstance(workflow, TracedWorkflow):
        value = workflow.bind(args, kwargs)
    else:
        value = _merge_input(source.workflow.name, args, kwargs)
    return RunArguments(
        workflow=source.workflow,
        input=value,
        labels=source.labels,
        priority=source.priority,
        key=source.key,
        settings=source.settings,
    )


def _resolve_source(workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG) -> RunSource:
    """Returns the workflow with its options; raises InputError if it can't be run from here."""
    trace = get_current_trace()
    if trace is not None:
        raise locate_user_code().build_error(
            f"runs a workflow inside the body of '{trace.name}'; call the workflow like a task"
        )
    options = getattr(workflow, "_run_options", None) or RunOptions()
    settings = _resolve_settings(options)
    labels = _copy_own_labels(options.labels)
    if isinstance(workflow, TracedWorkflow):
        model = workflow.to_workflow(retry=settings.retry)
        labels = {**_build_source_label(workflow), **labels}
        _check_importable(model, settings)
    else:
        model = (
            workflow if isinstance(workflow, Workflow) else _build_dag_workflow(workflow, settings)
        )
    return RunSource(
        workflow=model,
        labels=labels,
        priority=options.priority,
        key=options.key,
        settings=settings,
    )


def _copy_own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the user's labels; raises InputError for a reserved name."""
    for key in labels:
        if key.startswith(RESERVED_LABEL_PREFIX):
            raise InputError(
                f"labels: {quote_name(key)} begins with '{RESERVED_LABEL_PREFIX}', which is "
                "reserved for Runnel; rename the label"
            )
    return dict(labels)


def _merge_input(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input of a workflow without a signature; raises InputError."""
    given = args[0] if args else {}
    if len(args) > 1 or not isinstance(given, Mapping | None):
        found = f"{len(args)} values" if len(args) > 1 else describe_value(given)
        raise InputError(
            f"workflow {quote_name(name)}: expected its input as one object, such as "
            f'{{"user": "Ada"}}, or as names, such as user="Ada"; got {found}'
        )
    twice = sorted(str(key) for key in given or () if key in kwargs)
    if twice:
        raise InputError(f"workflow {quote_name(name)}: {quote_name(twice[0])} is given twice")
    return {**(given or {}), **kwargs}


def _build_dag_workflow(dag: WorkflowDAG, settings: Settings) -> Workflow:
    if dag.steps:
        raise InputError(
            f"step '{next(iter(dag.steps))}' is a function of this process, which runnel.run can't "
            "run: write 'await WorkflowExecutor().execute(dag, ...)', or use add_node"
        )
    return dag.to_workflow(retry=settings.retry)


def _resolve_settings(options: RunOptions) -> Settings:
    settings = override_settings(read_settings(), worker_concurrency=options.concurrency)
    if options.data_dir is None:
        return settings
    without = {"redis_url": None, "redis_host": None}
    return msgspec.structs.replace(settings, data_dir=options.data_dir, **without)


def _build_source_label(workflow: TracedWorkflow[..., Any]) -> dict[str, str]:
    module = workflow.function.__module__
    folder = find_import_folder(
        (get_main_module_name() or module) if module == "__main__" else module
    )
    return {} if folder is None else {SOURCE_LABEL: str(folder)}


def _check_importable(workflow: Workflow, settings: Settings) -> None:
    if not settings.has_redis:
        return
    for node in workflow.nodes:
        if str(node.config.get("function", "")).startswith(MAIN_MODULE_PREFIX):
            raise InputError(
                f"node '{node.id}': its function was defined in an interactive session, which the "
                "workers of a server can't import; put it into a file"
            )


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
    engine = await build_engine(settings)
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


async def _choose_nesting_level(context: RunContext, workflow: str, slot: TaskSlot) -> int:
    """Returns the level of an execution that a task runs; raises InputError above the maximum."""
    header = await context.backend.archive.get_header(get_root_id(slot.execution_id))
    # An execution in another store counts as the first level.
    labels = {} if header is None else header.labels
    level = _parse_level(labels.get(NESTING_LABEL, "")) + 1
    if level > NESTING_MAX:
        raise InputError(
            f"runnel.run: workflow '{workflow}' would run {level} levels below the "
            f"first execution; expected at most {NESTING_MAX} levels of tasks that wait for "
            "executions. For a loop, let a task submit the next execution with runnel.submit"
        )
    return level


def _parse_level(text: str) -> int:
    """Returns the level of a label. A user's own label, which older versions accepted, is 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("10000") else 0


async def _submit(context: RunContext, arguments: RunArguments) -> ExecutionId:
    return await context.client.submit(
        arguments.workflow,
        arguments.input,
        labels=arguments.labels,
        priority=arguments.priority,
        idempotency_key=arguments.key,
    )


async def _wait_until_final(
    shared: SharedResource[RunContext], context: RunContext, execution_id: ExecutionId
) -> ExecutionHeader:
    """Adopts the execution if another process has started it and is no longer alive."""
    store_retry = StoreRetry(context.clock, context.event_bus, "runnel.run")
    while True:
        header = await store_retry.run(lambda: _wait_briefly(context, execution_id), "wait")
        if header is not None:
            return header
        if shared.ended.is_set():
            raise EngineEndedError(execution_id) from shared.error
        if isinstance(context, Engine):
            await context.adopt_if_free(execution_id)


async def _wait_briefly(context: RunContext, execution_id: ExecutionId) -> ExecutionHeader | None:
    try:
        return await context.client.wait_for_end(execution_id, timeout_s=OWNER_POLL_INTERVAL_S)
    except TimeoutError:
        return None


async def _load_output(context: RunContext, execution_id: ExecutionId) -> bytes:
    execution = await context.client.load(execution_id)
    value = execution.output
    if value is None:
        return b"null"
    return bytes(value.data) if value.blob is None else await context.backend.blobs.get(value.blob)
