"""The composition root below HTTP: builds handlers, embedded engines and server roles."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import __version__
from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, Service
from runnel.app.process_signals import build_engine_name, build_role_name, get_host_name
from runnel.app.secrets import load_worker_secrets
from runnel.app.stores import open_sqlite
from runnel.authoring.registry import HandlerRegistry, list_app_tasks, load_app
from runnel.client.store_client import StoreClient
from runnel.core.states import ExecutionState
from runnel.core.workflow import EnginePolicy, RateLimit
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.orchestrator import Orchestrator
from runnel.engine.worker.worker import Worker, WorkerOptions
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import (
    ALLOW_ALL,
    AddressPermissions,
    FunctionPermissions,
    ProgramPermissions,
)
from runnel.notify.waiter import Completion
from runnel.ports import Backend
from runnel.ports.archive import Retention
from runnel.ports.clock import Clock
from runnel.ports.telemetry import Telemetry
from runnel.ports.workers import WorkerInfo
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from runnel.app.roles import OrchestratorRole, Role, WorkerRole
    from runnel.backends.redis.backend import RedisBackend
    from runnel.backends.redis_postgres.backend import RedisPostgresBackend
    from runnel.triggers.scheduler import Scheduler


# Handlers, with the permissions of the settings.


def build_local_handlers(settings: Settings, clock: Clock) -> HandlerRegistry:
    """Builds the handlers of a local run, which may do everything unless the settings forbid it."""
    return create_builtin_registry(
        _build_handler_environment(settings, clock, default=(ALLOW_ALL,))
    )


def build_server_handlers(
    settings: Settings,
    clock: Clock,
    *,
    app_modules: Sequence[str] = (),
    app_tasks: Iterable[str] = (),
    own_folder: Path | None = None,
) -> HandlerRegistry:
    """Builds the handlers of a server, which may do only what the settings allow.

    `app_modules` are the modules that the operator has named with --app. Their functions are
    allowed, and so are `app_tasks`, which they may import. If the settings name no function, the
    functions of Python files in `own_folder` are allowed.
    """
    environment = _build_handler_environment(settings, clock, default=())
    if settings.allowed_functions is None and own_folder is not None:
        environment = environment.with_folder(own_folder)
    return create_builtin_registry(environment.with_apps(app_modules, app_tasks))


def load_handlers(
    apps: Sequence[str] | None, settings: Settings, *, is_private: bool = False
) -> HandlerRegistry:
    """Returns the built-in handlers and those of the apps; raises InputError for equal names.

    Workflows have all permissions of the user only if the servers are private (`is_private`).
    """
    own = [load_app(app) for app in apps or ()]
    if is_private:
        handlers = build_local_handlers(settings, RealClock())
    else:
        handlers = build_server_handlers(
            settings,
            RealClock(),
            app_modules=[app.partition(":")[0] for app in apps or ()],
            app_tasks=[task for app in apps or () for task in list_app_tasks(app)],
        )
    for registry in own:
        handlers.include(registry)
    return handlers


def list_own_queues(
    handlers: HandlerRegistry, settings: Settings, apps: Sequence[str] | None
) -> Sequence[str]:
    """Returns the keys of the queues of the handlers.

    A worker that allows no Python function does not take the queue `python`.
    """
    allows_functions = bool(apps or settings.allowed_functions)
    names = [name for name in handlers.names() if name != "python" or allows_functions]
    return [f"tasks:{name}" for name in names]


def build_local_functions(settings: Settings) -> FunctionPermissions:
    """Returns the functions that a document may call in a local run."""
    named = settings.allowed_functions
    return FunctionPermissions() if named is None else FunctionPermissions(named)


def _build_handler_environment(
    settings: Settings, clock: Clock, *, default: tuple[str, ...]
) -> HandlerEnvironment:
    functions, programs = settings.allowed_functions, settings.allowed_programs
    return HandlerEnvironment(
        functions=FunctionPermissions(default if functions is None else functions),
        programs=ProgramPermissions(default if programs is None else programs),
        addresses=AddressPermissions(settings.allowed_addresses),
        llm_url=settings.llm_url,
        llm_api_key=settings.llm_api_key,
        mocks_services=settings.mocks_services,
        clock=clock,
    )


# No other worker competes for the tasks of an embedded engine, so its worker may claim more tasks
# than run at once. More tasks then share a claim and a report. With SQLite and 4 slots, that gave
# 2,894 diamonds/s instead of 2,154. These are medians of five alternating runs, from a time when a
# start check was a call of its own.
CLAIM_AHEAD = 60


async def build_engine(
    settings: Settings,
    *,
    handlers: HandlerRegistry | None = None,
    rate_limits: Mapping[str, RateLimit] | None = None,
    serves: bool = False,
    is_brief: bool = False,
) -> EmbeddedEngine:
    """Builds a durable engine on SQLite, in the data directory of the settings.

    With `serves`, the engine also starts the executions that other processes submit. `is_brief` is
    for one call: the next call of this process opens the database faster.
    """
    clock_and_ids = ClockAndIds(RealClock(), RandomIdGenerator())
    return EmbeddedEngine(
        await open_sqlite(settings, clock_and_ids.clock, clock_and_ids.ids, keeps_log=is_brief),
        handlers or build_local_handlers(settings, clock_and_ids.clock),
        clock_and_ids,
        settings,
        rate_limits=rate_limits,
        name=build_engine_name(clock_and_ids.ids.nonce(), serves=serves),
        claim_ahead=CLAIM_AHEAD,
    )


def build_memory_engine(
    settings: Settings,
    *,
    handlers: HandlerRegistry | None = None,
    rate_limits: Mapping[str, RateLimit] | None = None,
) -> EmbeddedEngine:
    """Builds an engine for tests and benchmarks: its data is lost when the process ends."""
    from runnel.backends.memory import MemoryBackend

    clock_and_ids = ClockAndIds(RealClock(), RandomIdGenerator())
    return EmbeddedEngine(
        MemoryBackend(clock_and_ids.clock, clock_and_ids.ids),
        handlers or build_local_handlers(settings, clock_and_ids.clock),
        clock_and_ids,
        settings,
        rate_limits=rate_limits,
        claim_ahead=CLAIM_AHEAD,
    )


# The roles of server processes.


def build_orchestrator(
    settings: Settings,
    backend: Backend,
    clock_and_ids: ClockAndIds,
    telemetry: Telemetry,
    *,
    archived: "RedisPostgresBackend | None" = None,
    retention: Retention | None = None,
) -> "OrchestratorRole":
    """Builds the role that owns partitions, with its services.

    `archived` is the same backend if it has an archive. `retention` deletes old executions there;
    None keeps them.
    """
    from runnel.app.roles import OrchestratorRole
    from runnel.engine.orchestrator.partition_share import make_sharing_orchestrator

    name = build_role_name("orchestrator", clock_and_ids.ids.nonce())
    graphs = GraphCache(backend.archive)
    parts = OrchestratorDependencies(
        store=backend.store,
        archive=backend.archive,
        blobs=backend.blobs,
        clock=clock_and_ids.clock,
        ids=clock_and_ids.ids,
        telemetry=telemetry,
        policy=EnginePolicy(
            crashes_max=settings.crashes_max, keeps_exhausted_tasks=settings.keeps_exhausted
        ),
        graphs=graphs,
        cached_executions_max=settings.cached_executions_max,
        idle_s_max=settings.redis_block_s,
    )
    orchestrator = make_sharing_orchestrator(parts, name=name, lease_s=settings.lease_s)
    services = [
        *_build_services(settings, backend, parts, orchestrator),
        build_scheduler(backend, clock_and_ids, telemetry, graphs=graphs),
        *([] if archived is None else [_build_archiver(settings, archived, parts, orchestrator)]),
        *([] if retention is None else [_build_retention_service(settings, retention, parts)]),
    ]
    return OrchestratorRole(name, orchestrator, services)


def build_scheduler(
    backend: Backend,
    clock_and_ids: ClockAndIds,
    telemetry: Telemetry,
    client: StoreClient | None = None,
    graphs: GraphCache | None = None,
) -> "Scheduler":
    """Builds the service that fires schedules.

    `client` is the one of an embedded engine, so that this engine runs the new executions.
    """
    from runnel.triggers.schedule_store import ScheduleStore
    from runnel.triggers.scheduler import Scheduler

    return Scheduler(
        ScheduleStore(backend, clock_and_ids.clock, clock_and_ids.ids),
        client
        or StoreClient(
            backend,
            clock_and_ids.clock,
            clock_and_ids.ids,
            get_completion=lambda _id: Completion(),
            graphs=graphs,
        ),
        backend.archive,
        clock_and_ids.clock,
        telemetry,
    )


def build_worker(
    settings: Settings,
    backend: Backend,
    clock_and_ids: ClockAndIds,
    telemetry: Telemetry,
    *,
    handlers: HandlerRegistry,
    queues: Sequence[str] | None = None,
) -> "WorkerRole":
    """Builds the role that runs the tasks of the named queues, or of all queues."""
    from runnel.app.roles import WorkerRole

    name = build_role_name("worker", clock_and_ids.ids.nonce())
    worker = Worker(
        backend.tasks,
        backend.blobs,
        handlers,
        clock_and_ids.clock,
        telemetry,
        name=name,
        options=WorkerOptions(
            concurrency=settings.worker_concurrency,
            queues=None if queues is None else tuple(queues),
            about=WorkerInfo(
                host=get_host_name(),
                pid=os.getpid(),
                handlers=tuple(handlers.names()),
                version=__version__,
            ),
            beat_s=settings.heartbeat_interval_s,
            shutdown_s=settings.shutdown_timeout_s,
            hand_back_s=settings.unserved_s,
        ),
        secrets=load_worker_secrets(settings),
    )
    return WorkerRole(name, worker)


def build_engine_roles(
    settings: Settings,
    backend: "RedisBackend | RedisPostgresBackend",
    clock_and_ids: ClockAndIds,
    telemetry: Telemetry,
    *,
    handlers: HandlerRegistry,
    queues: Sequence[str] | None = None,
) -> "Role":
    """Builds an orchestrator and a worker for one process; the worker shuts down first."""
    from runnel.app.roles import PairedRole
    from runnel.backends.redis_postgres.backend import RedisPostgresBackend

    orchestrator = build_orchestrator(
        settings,
        backend,
        clock_and_ids,
        telemetry,
        archived=backend if isinstance(backend, RedisPostgresBackend) else None,
        retention=backend.retention,
    )
    worker = build_worker(
        settings, backend, clock_and_ids, telemetry, handlers=handlers, queues=queues
    )
    return PairedRole(orchestrator, first=worker)


def _build_services(
    settings: Settings,
    backend: Backend,
    parts: OrchestratorDependencies,
    orchestrator: Orchestrator,
) -> Sequence[Service]:
    """Builds the services of every orchestrator process."""
    from runnel.engine.services.dead_workers import Reaper
    from runnel.engine.services.unserved_queues import UnservedQueueService
    from runnel.engine.services.watchdog import Watchdog

    ports = (backend.store, backend.tasks, parts.clock, parts.telemetry)
    return [
        Reaper(*ports, dead_after_s=settings.heartbeat_timeout_s),
        UnservedQueueService(*ports, unserved_s=settings.unserved_s),
        Watchdog(
            parts,
            orchestrator,
            sweep_s=settings.sweep_s,
            repair_after_s=settings.repair_after_s,
            stale_s=settings.unread_s,
        ),
    ]


def _build_archiver(
    settings: Settings,
    backend: "RedisPostgresBackend",
    parts: OrchestratorDependencies,
    orchestrator: Orchestrator,
) -> Service:
    from runnel.engine.services.archiver import Archiver, ArchiverOptions

    return Archiver(
        backend.journal,
        backend.ledger,
        parts.clock,
        parts.telemetry,
        hot_blobs=backend.hot_blobs,
        cold_blobs=backend.cold_blobs,
        leases=orchestrator.leases,
        options=ArchiverOptions(alarm_s=settings.archive_alarm_s),
    )


def _build_retention_service(
    settings: Settings, retention: Retention, parts: OrchestratorDependencies
) -> Service:
    from runnel.engine.services.retention import RetentionService

    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    return RetentionService(retention, parts.clock, parts.telemetry, days=days)
