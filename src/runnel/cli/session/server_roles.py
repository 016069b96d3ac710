"""Runs an orchestrator, worker or API process that uses Redis and PostgreSQL."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias, TypeVar

import typer

from runnel.app.embedded_engine import ClockAndIds
from runnel.app.roles import OrchestratorRole, Role, RoleProcess, WorkerRole
from runnel.app.secrets import KnownSecrets, load_worker_secrets
from runnel.app.stores import (
    build_postgres_display_url,
    build_redis_display_url,
    list_connection_secrets,
    open_archived,
    open_redis,
    open_unarchived,
)
from runnel.app.wiring import (
    build_orchestrator,
    build_worker,
    list_own_queues,
)
from runnel.authoring.registry import HandlerRegistry
from runnel.cli.streams import print_to_stderr
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, NoServerError
from runnel.ports import Backend
from runnel.ports import telemetry as names
from runnel.ports.archive import Retention
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.telemetry import FanOutTelemetry, Telemetry
from runnel.settings import find_misspelled_variables
from runnel.settings.model import Settings
from runnel.settings.variables import PORT_MAX
from runnel.telemetry.logs import LogTelemetry, configure_logging
from runnel.telemetry.metrics import MetricsTelemetry

if TYPE_CHECKING:
    from runnel.backends.redis.backend import RedisBackend
    from runnel.backends.redis_postgres.backend import RedisPostgresBackend


MetricsPortOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=PORT_MAX,
        help="The port that serves metrics for Prometheus; 0 picks a free port. "
        "[dim]\\[default: $RUNNEL_METRICS_PORT, or no metrics][/dim]",
    ),
]


def add_metrics_server(
    role: "Role", dependencies: "RoleDependencies", *, uses_archive: bool
) -> "Role":
    """Returns the role with a metrics server, or the role itself without a metrics port.

    Raises InputError if the port is in use. Only a role that `uses_archive` serves metrics of the
    whole store. The HTTP server takes 0.3 s to import, so it is imported only with a port.
    """
    settings = dependencies.settings
    if dependencies.metrics is None or settings.metrics_port is None:
        return role
    from runnel.api.server import METRICS_PATH, RoleWithMetrics, format_url, listen
    from runnel.client.operations import PartitionMonitor, StoreGauges
    from runnel.telemetry.prometheus import Exposition

    clock, backend = dependencies.clock_and_ids.clock, dependencies.backend
    listening = listen(settings.metrics_host, settings.metrics_port, option="--metrics-port")
    listening.set_inheritable(False)
    exposition, refresh = Exposition(dependencies.metrics.collect_families), None
    if uses_archive:
        partitions = PartitionMonitor(backend.store, clock, lease_s=settings.lease_s)
        gauges = StoreGauges(backend, clock, settings, partitions)
        exposition.add(gauges.collect_families)
        refresh = gauges.refresh
    print_to_stderr(f"metrics on {format_url(listening)}{METRICS_PATH}")
    return RoleWithMetrics(role, exposition, listening, refresh=refresh)


def assign_metrics_ports(first: int | None, count: int) -> list[list[str]]:
    """Returns the metrics options of each process, with consecutive ports from `first` on.

    Raises InputError if there are not enough ports.
    """
    if not first:
        return [[] if first is None else ["--metrics-port", "0"]] * count
    if first + count - 1 > PORT_MAX:
        raise InputError(
            f"--metrics-port: {count} processes need one port each, from {first} on, but "
            f"{PORT_MAX} is the last port; give a lower port"
        )
    return [["--metrics-port", str(first + number)] for number in range(count)]


class RoleDependencies(NamedTuple):
    """The parts that a role is built from.

    `archived` is `backend` if the backend includes PostgreSQL, else None. `metrics` is None if no
    port serves metrics.
    """

    settings: Settings
    backend: Backend
    archived: "RedisPostgresBackend | None"
    retention: Retention
    clock_and_ids: ClockAndIds
    telemetry: Telemetry
    metrics: MetricsTelemetry | None = None


RoleBuilder: TypeAlias = Callable[[RoleDependencies], Role | Awaitable[Role]]


async def serve(
    settings: Settings,
    role: str,
    build: RoleBuilder,
    *,
    uses_archive: bool,
    runs_tasks: bool = True,
    takes_archive: bool = False,
    serves_http: bool = False,
) -> int:
    """Runs the role until a signal arrives, and returns the exit code.

    Raises NoServerError if a server can't be reached for `start_timeout_s`. Only a process that
    `uses_archive` opens the archive (see `open_archived` for `takes_archive`). Only a process that
    `runs_tasks` loads secrets. A process that `serves_http` serves its metrics itself.
    """
    clock_and_ids = ClockAndIds(RealClock(), RandomIdGenerator())
    secrets = load_worker_secrets(settings) if runs_tasks else KnownSecrets({})
    configure_logging(
        format_=settings.log_format,
        level=settings.log_level,
        secrets=list_connection_secrets(settings),
        hide=secrets.redact,
        process_fields={"role": role},
    )
    metrics = MetricsTelemetry() if serves_http or settings.metrics_port is not None else None
    logs = LogTelemetry()
    telemetry: Telemetry = logs if metrics is None else FanOutTelemetry(logs, metrics)
    for sentence in find_misspelled_variables():
        telemetry.event(names.SETTING_UNKNOWN, problem=sentence)
    opening = ServerWait(settings, clock_and_ids.clock, telemetry)
    archived: RedisPostgresBackend | None = None
    backend: RedisBackend | RedisPostgresBackend
    if uses_archive and settings.has_postgres:
        archive_opener = partial(open_archived, takes_archive=takes_archive)
        backend = archived = await opening.open(archive_opener, clock_and_ids.ids)
    elif uses_archive:
        backend = await opening.open(open_unarchived, clock_and_ids.ids)
    else:
        backend = await opening.open(open_redis, clock_and_ids.ids)
    postgres = {} if archived is None else {"postgres": build_postgres_display_url(settings)}
    telemetry.event(
        names.STORE_OPENED,
        redis=build_redis_display_url(settings),
        environment=settings.environment,
        **postgres,
    )
    dependencies = RoleDependencies(
        settings, backend, archived, backend.retention, clock_and_ids, telemetry, metrics
    )
    try:
        built = build(dependencies)
        running = await built if isinstance(built, Awaitable) else built
        process = RoleProcess(
            add_metrics_server(running, dependencies, uses_archive=uses_archive), backend, telemetry
        )
    except BaseException:
        await backend.close()
        raise
    return await process.run()


OpenedBackend = TypeVar("OpenedBackend")
# A process logs this often that it waits for a server.
WAIT_INTERVAL_S = 2.0
# A server that has just started refuses commands with these texts, and accepts them soon.
_STARTING_TEXTS = ("LOADING", "starting up")


class ServerWait:
    """Opens a store, and waits up to `start_timeout_s` for servers that can't be reached yet.

    Any other problem, such as a wrong password, is raised at once.
    """

    def __init__(self, settings: Settings, clock: Clock, telemetry: Telemetry) -> None:
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._deadline = clock.monotonic() + settings.start_timeout_s

    async def open(
        self,
        open_store: Callable[[Settings, Clock, IdGenerator], Awaitable[OpenedBackend]],
        ids: IdGenerator,
    ) -> OpenedBackend:
        while True:
            try:
                return await open_store(self._settings, self._clock, ids)
            except NoServerError as error:
                remaining_s = self._deadline - self._clock.monotonic()
                if remaining_s <= 0 or not is_unreachable(error):
                    raise
                self._telemetry.event(
                    names.SERVER_AWAITED, error=str(error), remaining_s=round(remaining_s, 1)
                )
                await self._clock.sleep(min(WAIT_INTERVAL_S, remaining_s))


def is_unreachable(error: NoServerError) -> bool:
    """Returns True if the server may accept the same call soon."""
    if any(text in str(error) for text in _STARTING_TEXTS):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return True
        cause = cause.__cause__
    return False


def build_orchestrator_role(dependencies: RoleDependencies) -> OrchestratorRole:
    return build_orchestrator(
        dependencies.settings,
        dependencies.backend,
        dependencies.clock_and_ids,
        dependencies.telemetry,
        archived=dependencies.archived,
        retention=dependencies.retention,
    )


def build_worker_role(
    dependencies: RoleDependencies, handlers: HandlerRegistry, queues: Sequence[str] | None = None
) -> WorkerRole:
    return build_worker(
        dependencies.settings,
        dependencies.backend,
        dependencies.clock_and_ids,
        dependencies.telemetry,
        handlers=handlers,
        queues=queues,
    )


def parse_queues(
    text: str | None, handlers: HandlerRegistry, settings: Settings, apps: Sequence[str] | None
) -> Sequence[str]:
    """Returns the keys of the named queues (`python,reports`); a key begins with `tasks:`.

    If `text` is None, returns the queues of the worker's own handlers. Raises InputError.
    """
    if text is None:
        return list_own_queues(handlers, settings, apps)
    names_ = [name.strip() for name in text.split(",")]
    if not all(names_):
        raise InputError(f"--queues: expected names separated by commas, got '{text}'")
    return [f"tasks:{name.removeprefix('tasks:')}" for name in dict.fromkeys(names_)]
