"""Runs workflows for Python code: here, or by the workers of the servers that are set."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from runnel.app.engine import Engine, SharedResource, SharedResourcePool, run_engine
from runnel.app.stores import open_store_session
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
from runnel.client.idempotency import derive_execution_id
from runnel.client.store_client import StoreClient
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.errors import EngineEndedError, InputError, WorkflowFailedError
from runnel.notify.event_bus import EventBus
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import ExecutionHeader
from runnel.settings import override_settings, read_settings
from runnel.settings.model import Settings

P = ParamSpec("P")
R = TypeVar("R")

# How often the owner of an execution that another process runs is checked for life.
OWNER_POLL_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """`key` names one execution of a workflow: who runs it again gets that one, or goes on with it.

    `data_dir` is for executions without servers; both it and `concurrency` are settings otherwise.
    """

    key: str | None = None
    data_dir: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None


@overload
async def run(workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
async def run(workflow: Workflow | WorkflowDAG, /, **kwargs: Any) -> Any: ...
async def run(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG, /, *args: Any, **kwargs: Any
) -> Any:
    """Runs an execution to its end and returns its result, as JSON has it.

    Everything is stored in the data dir (`.runnel`), or on the servers that are set. Raises
    WorkflowFailedError; InputError, before anything runs, for a wrong input. Cancelled, or killed,
    it leaves the execution to be gone on with: by `runnel resume`, or by running it again with the
    same key (`workflow.run_options(key=...)`).
    """
    request = _build_run_arguments(workflow, args, kwargs)
    async with _get_pool(request.settings).use(lambda: _open_context(request)) as shared:
        site = await shared.wait_until_opened()
        execution_id = await _submit(site, request)
        try:
            header = await _wait_until_final(shared, site, execution_id)
        except asyncio.CancelledError:
            _abort_engine_if_last(shared, site)
            raise
        if header.state is not ExecutionState.COMPLETED:
            raise WorkflowFailedError(
                execution_id, header.workflow, status=header.state, error=header.error
            )
        return await _load_output(site, execution_id)


async def submit(workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> str:
    """Stores an execution and returns its id, without waiting for anything.

    The workers of a server run it; without servers the next `runnel resume` does.
    """
    request = _build_run_arguments(workflow, args, kwargs)
    if request.settings.has_redis:
        async with _get_pool(request.settings).use(lambda: _open_context(request)) as shared:
            return await _submit(await shared.wait_until_opened(), request)
    engine = await build_engine(request.settings)
    try:
        await engine.claim_home_partition()
        return await _submit(_build_embedded_context(engine), request)
    finally:
        await engine.backend.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    workflow: Workflow
    input: Json
    labels: Mapping[str, str]
    key: str | None
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Where executions are; `engine` is None where others run them."""

    client: StoreClient
    backend: Backend
    clock: Clock
    event_bus: EventBus
    engine: Engine | None = None


def _build_run_arguments(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> RunArguments:
    trace = get_current_trace()
    if trace is not None:
        raise locate_user_code().build_error(
            f"runs a workflow inside the body of '{trace.name}'; call it as a task is called"
        )
    options = getattr(workflow, "_run_options", None) or RunOptions()
    settings = _resolve_settings(options)
    if isinstance(workflow, TracedWorkflow):
        model = workflow.to_workflow(retry=settings.retry)
        value = workflow.bind(args, kwargs)
        labels = {**_build_source_label(workflow), **options.labels}
        _check_importable(model, settings)
    else:
        model = (
            workflow if isinstance(workflow, Workflow) else _build_dag_workflow(workflow, settings)
        )
        value, labels = dict(kwargs), dict(options.labels)
    return RunArguments(
        workflow=model, input=value, labels=labels, key=options.key, settings=settings
    )


def _build_dag_workflow(dag: WorkflowDAG, settings: Settings) -> Workflow:
    if dag.steps:
        raise InputError(
            f"step '{next(iter(dag.steps))}' is a function of this process: write 'await "
            "WorkflowExecutor().execute(dag, ...)', or add_node"
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
                f"node '{node.id}': the workers of a server can't import what was typed into an "
                "interactive session; put its function into a file"
            )


_pools: dict[bytes, SharedResourcePool[RunContext]] = {}


def _get_pool(settings: Settings) -> SharedResourcePool[RunContext]:
    """One for equal settings: concurrent calls share one engine."""
    name = msgspec.json.encode(settings, enc_hook=str)
    pool = _pools.get(name)
    if pool is None:
        pool = _pools[name] = SharedResourcePool()
    return pool


@asynccontextmanager
async def _open_context(arguments: RunArguments) -> AsyncIterator[RunContext]:
    settings = arguments.settings
    if settings.has_redis:
        async with open_store_session(settings) as session:
            yield RunContext(
                client=session.client,
                backend=session.backend,
                clock=session.clock,
                event_bus=session.event_bus,
            )
        return
    engine = await build_engine(settings)
    async with run_engine(engine, adopts=await _find_abandoned_partition(engine, arguments)):
        yield _build_embedded_context(engine)


def _build_embedded_context(engine: Engine) -> RunContext:
    return RunContext(
        client=engine.client,
        backend=engine.backend,
        clock=engine.clock,
        event_bus=engine.event_bus,
        engine=engine,
    )


async def _find_abandoned_partition(engine: Engine, arguments: RunArguments) -> frozenset[int]:
    """The partition of an execution that was begun before, and that no living process has."""
    backend = engine.backend
    if arguments.key is None:
        return frozenset()
    execution_id = derive_execution_id(arguments.workflow.name, arguments.key)
    if await backend.archive.get_header(execution_id) is None:
        return frozenset()
    partition = await backend.store.route(execution_id)
    return frozenset() if await backend.store.observe(partition) else frozenset({partition})


async def _submit(context: RunContext, arguments: RunArguments) -> ExecutionId:
    return await context.client.submit(
        arguments.workflow, arguments.input, labels=arguments.labels, idempotency_key=arguments.key
    )


async def _wait_until_final(
    shared: SharedResource[RunContext], context: RunContext, execution_id: ExecutionId
) -> ExecutionHeader:
    """Also of an execution that another process has begun: when that is gone, this one goes on."""
    patience = StoreRetry(context.clock, context.event_bus, "runnel.run")
    while True:
        header = await patience.run(lambda: _wait_briefly(context, execution_id), "wait")
        if header is not None:
            return header
        if shared.ended.is_set():
            raise EngineEndedError(execution_id) from shared.error
        if context.engine is not None:
            await context.engine.adopt_if_free(execution_id)


def _abort_engine_if_last(shared: SharedResource[RunContext], context: RunContext) -> None:
    """Who is cancelled does not wait for tasks that nobody waits for: they are run again later."""
    if context.engine is not None and shared.users == 1:
        context.engine.stops.abort.set()


async def _wait_briefly(context: RunContext, execution_id: ExecutionId) -> ExecutionHeader | None:
    try:
        return await context.client.wait_for_end(execution_id, timeout_s=OWNER_POLL_INTERVAL_S)
    except TimeoutError:
        return None


async def _load_output(context: RunContext, execution_id: ExecutionId) -> Json:
    execution = await context.client.load(execution_id)
    value = execution.output
    if value is None:
        return None
    data = value.data if value.blob is None else await context.backend.blobs.get(value.blob)
    return msgspec.json.decode(data)
