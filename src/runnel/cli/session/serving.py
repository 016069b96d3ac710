"""Runs a process with a role on servers, from the settings to its exit code."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from runnel.app.engine import World
from runnel.app.roles import OrchestratorRole, Process, Role, WorkerRole
from runnel.app.secrets import KnownSecrets, secrets_of_worker
from runnel.app.stores import (
    open_archived,
    open_redis,
    open_unarchived,
    postgres_shown,
    redis_shown,
    secrets_of,
)
from runnel.app.wiring import build_orchestrator, build_worker, local_handlers, server_handlers
from runnel.authoring.registry import HandlerRegistry, load_app, tasks_of_app
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import InputError
from runnel.ports import Backend
from runnel.ports import telemetry as names
from runnel.ports.archive import Retention
from runnel.ports.telemetry import Telemetry
from runnel.settings import look_alikes
from runnel.settings.model import Settings
from runnel.telemetry import Several
from runnel.telemetry.logs import LogTelemetry, write_logs
from runnel.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from runnel.backends.redis_postgres.backend import ArchivedBackend


# Metrics of a process on a port of their own, where it has been given one.

PORT_MAX = 65_535

MetricsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=PORT_MAX,
        help="Show metrics for Prometheus there; 0 is one that is free. "
        "[dim]\\[default: $RUNNEL_METRICS_PORT, or not at all][/dim]",
        show_default=False,
    ),
]


def metered(role: "Role", site: "Site", *, decides: bool) -> "Role":
    """Only who `decides` has the whole store to show; raises InputError for a port that is taken.

    What it needs takes 0.3 s to import: nobody pays for that without a port.
    """
    settings = site.settings
    if site.metrics is None or settings.metrics_port is None:
        return role
    from runnel.api.server import PATH, MeteredRole, listen, url_of
    from runnel.client.operations import Partitions, StoreGauges
    from runnel.telemetry.prometheus import Exposition

    clock, backend = site.world.clock, site.backend
    listening = listen(settings.metrics_host, settings.metrics_port, option="--metrics-port")
    listening.set_inheritable(False)
    exposition, refresh = Exposition(site.metrics.families), None
    if decides:
        partitions = Partitions(backend.store, clock, lease_s=settings.lease_s)
        gauges = StoreGauges(backend, clock, settings, partitions)
        exposition.add(gauges.families)
        refresh = gauges.refresh
    print(f"metrics on {url_of(listening)}{PATH}", file=sys.stderr, flush=True)
    return MeteredRole(role, exposition, listening, refresh=refresh)


def ports_for(first: int | None, count: int) -> list[list[str]]:
    """What each of several processes is given: a port of its own, the next ones in turn.

    Raises InputError when there are not so many.
    """
    from runnel.errors import InputError

    if not first:
        return [[] if first is None else ["--metrics-port", "0"]] * count
    if first + count - 1 > PORT_MAX:
        raise InputError(
            f"--metrics-port: {count} processes need a port each from {first} on, and {PORT_MAX} "
            "is the last one; give a lower one"
        )
    return [["--metrics-port", str(first + number)] for number in range(count)]


class Site(NamedTuple):
    """What a role is built on; `archived` is the backend again, if PostgreSQL belongs to it.

    `metrics` are there if somebody may ask for them.
    """

    settings: Settings
    backend: Backend
    archived: "ArchivedBackend | None"
    retention: Retention
    world: World
    telemetry: Telemetry
    metrics: Metrics | None = None


Build: TypeAlias = Callable[[Site], Role | Awaitable[Role]]


async def serve(
    settings: Settings,
    role: str,
    build: Build,
    *,
    decides: bool,
    works: bool = True,
    takes_archive: bool = False,
    answers: bool = False,
) -> int:
    """Until a signal; raises NoServerError when a server can't be reached at the beginning.

    Only a process that `decides` needs the archive (see `open_archived` for `takes_archive`), only
    one that `works` needs secrets, one that `answers` shows its metrics by itself.
    """
    world = World(RealClock(), RealIds())
    secrets = secrets_of_worker(settings) if works else KnownSecrets({})
    archived: ArchivedBackend | None = None
    backend: Backend
    if decides and settings.has_postgres:
        backend = archived = await open_archived(
            settings, world.clock, world.ids, takes_archive=takes_archive
        )
    elif decides:
        backend = await open_unarchived(settings, world.clock, world.ids)
    else:
        backend = await open_redis(settings, world.clock, world.ids)
    write_logs(
        format_=settings.log_format,
        level=settings.log_level,
        secrets=secrets_of(settings),
        hide=secrets.hide,
        about={"role": role},
    )
    metrics = Metrics() if answers or settings.metrics_port is not None else None
    logs = LogTelemetry()
    telemetry: Telemetry = logs if metrics is None else Several(logs, metrics)
    for sentence in look_alikes():
        telemetry.event(names.SETTING_UNKNOWN, problem=sentence)
    shown = {} if archived is None else {"postgres": postgres_shown(settings)}
    telemetry.event(
        names.STORE_OPENED, redis=redis_shown(settings), environment=settings.environment, **shown
    )
    site = Site(settings, backend, archived, backend.retention, world, telemetry, metrics)
    try:
        built = build(site)
        running = await built if isinstance(built, Awaitable) else built
        process = Process(metered(running, site, decides=decides), backend, telemetry)
    except BaseException:
        await backend.close()
        raise
    return await process.run()


def orchestrating(site: Site) -> OrchestratorRole:
    return build_orchestrator(
        site.settings,
        site.backend,
        site.world,
        site.telemetry,
        archived=site.archived,
        retention=site.retention,
    )


def working(
    site: Site, handlers: HandlerRegistry, queues: Sequence[str] | None = None
) -> WorkerRole:
    return build_worker(
        site.settings,
        site.backend,
        site.world,
        site.telemetry,
        handlers=handlers,
        queues=queues,
    )


def handlers_of(
    app: str | None, settings: Settings, *, is_private: bool = False
) -> HandlerRegistry:
    """The built-in ones and those of the app; raises InputError when two share a name.

    Only on a server that `is_private` may submitted documents do what its user may.
    """
    own = None if app is None else load_app(app)
    if is_private:
        handlers = local_handlers(settings, RealClock())
    elif app is None:
        handlers = server_handlers(settings, RealClock())
    else:
        module, tasks = app.partition(":")[0], tasks_of_app(app)
        handlers = server_handlers(settings, RealClock(), app_module=module, app_tasks=tasks)
    if own is not None:
        handlers.include(own)
    return handlers


def queues_of(text: str | None, handlers: HandlerRegistry) -> Sequence[str]:
    """By the names that people use, `python,reports`: a queue's key begins with `tasks:`.

    Without a text those of the handlers that the worker has: what it can't run is for others.
    """
    if text is None:
        return [f"tasks:{name}" for name in handlers.names()]
    names_ = [name.strip() for name in text.split(",")]
    if not all(names_):
        raise InputError(f"--queues: expected names with commas between them, got '{text}'")
    return [f"tasks:{name.removeprefix('tasks:')}" for name in dict.fromkeys(names_)]
