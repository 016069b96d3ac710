"""Runs workflows for Python code: here, or by the workers of the servers that are set."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from runnel.app.engine import Engine, Shared, Sharing, running
from runnel.app.follower import Remote
from runnel.app.stores import looking
from runnel.app.wiring import build_engine
from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.decorators.source_location import here
from runnel.authoring.decorators.trace import current
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.functions import IN_SESSION, import_folder, main_name
from runnel.client.idempotency import execution_id_of
from runnel.client.store_client import Client
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.liveness import Patience
from runnel.errors import EngineEndedError, InputError, WorkflowFailedError
from runnel.notify.hub import Hub
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import Header
from runnel.settings import adjusted, read_settings
from runnel.settings.model import Settings

# Where the functions of an execution are: remembered with it, for whoever goes on with it.

SOURCE_LABEL = "runnel.source"
"""The folder that `resume` puts where `import` looks first."""


P = ParamSpec("P")
R = TypeVar("R")

# How often it is asked whether somebody still is there who runs an execution of another process.
OWNER_LOOK_S = 0.5


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
    wanted = _wanted(workflow, args, kwargs)
    async with _sharing(wanted.settings).use(lambda: _site(wanted)) as shared:
        site = await shared.opened()
        execution_id = await _begin(site, wanted)
        try:
            header = await _until_final(shared, site, execution_id)
        except asyncio.CancelledError:
            _hurry(shared, site)
            raise
        if header.state is not ExecutionState.COMPLETED:
            raise WorkflowFailedError(
                execution_id, header.workflow, status=header.state, error=header.error
            )
        return await _output(site, execution_id)


async def submit(workflow: TracedWorkflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> str:
    """Stores an execution and returns its id, without waiting for anything.

    The workers of a server run it; without servers the next `runnel resume` does.
    """
    wanted = _wanted(workflow, args, kwargs)
    if wanted.settings.has_redis:
        async with _sharing(wanted.settings).use(lambda: _site(wanted)) as shared:
            return await _begin(await shared.opened(), wanted)
    engine = await build_engine(wanted.settings)
    try:
        await engine.claim_home()
        return await _begin(_embedded(engine), wanted)
    finally:
        await engine.backend.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    workflow: Workflow
    input: Json
    labels: Mapping[str, str]
    key: str | None
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where executions are; `engine` is None where others run them."""

    client: Client
    backend: Backend
    clock: Clock
    hub: Hub
    engine: Engine | None = None


def _wanted(
    workflow: TracedWorkflow[..., Any] | Workflow | WorkflowDAG,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Wanted:
    trace = current()
    if trace is not None:
        raise here().refusal(
            f"runs a workflow inside the body of '{trace.name}'; call it as a task is called"
        )
    options = getattr(workflow, "_run_options", None) or RunOptions()
    settings = _settings(options)
    if isinstance(workflow, TracedWorkflow):
        model = workflow.to_workflow(retry=settings.retry)
        value = workflow.bind(args, kwargs)
        labels = {**_source(workflow), **options.labels}
        _check_names(model, settings)
    else:
        model = workflow if isinstance(workflow, Workflow) else _built(workflow, settings)
        value, labels = dict(kwargs), dict(options.labels)
    return Wanted(workflow=model, input=value, labels=labels, key=options.key, settings=settings)


def _built(dag: WorkflowDAG, settings: Settings) -> Workflow:
    if dag.steps:
        raise InputError(
            f"step '{next(iter(dag.steps))}' is a function of this process: write 'await "
            "WorkflowExecutor().execute(dag, ...)', or add_node"
        )
    return dag.to_workflow(retry=settings.retry)


def _settings(options: RunOptions) -> Settings:
    settings = adjusted(read_settings(), worker_concurrency=options.concurrency)
    if options.data_dir is None:
        return settings
    without = {"redis_url": None, "redis_host": None}
    return msgspec.structs.replace(settings, data_dir=options.data_dir, **without)


def _source(workflow: TracedWorkflow[..., Any]) -> dict[str, str]:
    module = workflow.function.__module__
    folder = import_folder((main_name() or module) if module == "__main__" else module)
    return {} if folder is None else {SOURCE_LABEL: str(folder)}


def _check_names(workflow: Workflow, settings: Settings) -> None:
    if not settings.has_redis:
        return
    for node in workflow.nodes:
        if str(node.config.get("function", "")).startswith(IN_SESSION):
            raise InputError(
                f"node '{node.id}': the workers of a server can't import what was typed into an "
                "interactive session; put its function into a file"
            )


_open: dict[bytes, Sharing[Site]] = {}


def _sharing(settings: Settings) -> Sharing[Site]:
    """One for equal settings: concurrent calls share one engine."""
    name = msgspec.json.encode(settings, enc_hook=str)
    found = _open.get(name)
    if found is None:
        found = _open[name] = Sharing()
    return found


@asynccontextmanager
async def _site(wanted: Wanted) -> AsyncIterator[Site]:
    settings = wanted.settings
    if settings.has_redis:
        async with looking(settings) as look, asyncio.TaskGroup() as group:
            remote = Remote(look, absence=None, say=lambda _: None)
            group.create_task(remote.run())
            try:
                yield Site(client=look.client, backend=look.backend, clock=look.clock, hub=look.hub)
            finally:
                remote.stops.gently.set()
        return
    engine = await build_engine(settings)
    async with running(engine, adopts=await _abandoned(engine, wanted)):
        yield _embedded(engine)


def _embedded(engine: Engine) -> Site:
    return Site(
        client=engine.client,
        backend=engine.backend,
        clock=engine.clock,
        hub=engine.hub,
        engine=engine,
    )


async def _abandoned(engine: Engine, wanted: Wanted) -> frozenset[int]:
    """The partition of an execution that was begun before, and that no living process has."""
    backend = engine.backend
    if wanted.key is None:
        return frozenset()
    execution_id = execution_id_of(wanted.workflow.name, wanted.key)
    if await backend.archive.get_header(execution_id) is None:
        return frozenset()
    partition = await backend.store.route(execution_id)
    return frozenset() if await backend.store.observe(partition) else frozenset({partition})


async def _begin(site: Site, wanted: Wanted) -> ExecutionId:
    return await site.client.submit(
        wanted.workflow, wanted.input, labels=wanted.labels, idempotency_key=wanted.key
    )


async def _until_final(shared: Shared[Site], site: Site, execution_id: ExecutionId) -> Header:
    """Also of an execution that another process has begun: when that is gone, this one goes on."""
    patience = Patience(site.clock, site.hub, "runnel.run")
    while True:
        header = await patience.until_done(lambda: _waited(site, execution_id), "wait")
        if header is not None:
            return header
        if shared.over.is_set():
            raise EngineEndedError(execution_id) from shared.error
        if site.engine is not None:
            await site.engine.adopt_if_free(execution_id)


def _hurry(shared: Shared[Site], site: Site) -> None:
    """Who is cancelled does not wait for tasks that nobody waits for: they are run again later."""
    if site.engine is not None and shared.users == 1:
        site.engine.stops.now.set()


async def _waited(site: Site, execution_id: ExecutionId) -> Header | None:
    try:
        return await site.client.wait(execution_id, timeout_s=OWNER_LOOK_S)
    except TimeoutError:
        return None


async def _output(site: Site, execution_id: ExecutionId) -> Json:
    execution = await site.client.load(execution_id)
    value = execution.output
    if value is None:
        return None
    data = value.data if value.blob is None else await site.backend.blobs.get(value.blob)
    return msgspec.json.decode(data)
