"""`runnel dev`"""

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.api.app import build_api
from runnel.app.engine import ClockAndIds
from runnel.app.roles import EngineRole, PairedRole, RoleProcess
from runnel.app.wiring import build_engine, build_scheduler, build_server_handlers
from runnel.authoring.registry import HandlerRegistry
from runnel.cli.commands.api import HostOption, PortOption, finish_startup
from runnel.cli.commands.run import Concurrency
from runnel.cli.commands.serve import AppOption
from runnel.cli.options import DataDir, RedisUrl, StoreLocation
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.serving import load_handlers
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError
from runnel.ports import telemetry as names
from runnel.settings import find_misspelled_variables
from runnel.settings.model import Settings
from runnel.telemetry.logs import configure_logging
from runnel.telemetry.metrics import MetricsTelemetry

if TYPE_CHECKING:
    from runnel.app.roles import Role
    from runnel.cli.session.serving import RoleDependencies


def dev(
    *,
    with_servers: Annotated[
        bool,
        typer.Option(
            "--with-servers",
            help="Start private servers, Redis and PostgreSQL, gone when this command ends.",
        ),
    ] = False,
    app: AppOption = None,
    concurrency: Concurrency = None,
    host: HostOption = None,
    port: PortOption = None,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """Everything in one process: it decides, runs tasks and answers HTTP requests.

    By default on a data directory, without any server. With a Redis, or with private servers, it
    prints what to set in another terminal: [bold]runnel run[/bold] there hands its work over.

    Documents that come over HTTP may call the functions of Python files in the working directory,
    and what --app, RUNNEL_ALLOW_PYTHON and RUNNEL_ALLOW_SHELL name.

    Ctrl-C ends everything.
    """
    from runnel.api.server import listen
    from runnel.cli.options import configure
    from runnel.errors import InputError
    from runnel.settings import override_settings

    if with_servers and (redis_url is not None or data_dir is not None):
        other = "--data-dir" if redis_url is None else "--redis-url"
        raise InputError(f"--with-servers and {other} are two places; give only one of them")
    settings = configure(StoreLocation(data_dir, redis_url), concurrency=concurrency)
    settings = override_settings(settings, api_host=host, api_port=port)
    listening = listen(settings.api_host, settings.api_port)
    if not with_servers:
        if settings.has_redis:
            return _serve_on_servers(settings, app, listening)
        return _run_embedded(settings, app, listening)
    from runnel.app.private_servers.postgres import PostgresServer
    from runnel.app.private_servers.redis import RedisServer

    with RedisServer() as redis, PostgresServer() as postgres:
        print("in another terminal:", file=sys.stderr)
        print(f"export REDIS_URL={redis.url} POSTGRES_URL={postgres.url}", flush=True)
        servers = override_settings(settings, redis_url=redis.url, postgres_url=postgres.url)
        return _serve_on_servers(servers, app, listening, is_private=True)


def _serve_on_servers(
    settings: "Settings",
    app: str | None,
    server_socket: "socket.socket",
    *,
    is_private: bool = False,
) -> int:
    import asyncio

    from runnel.app.roles import PairedRole
    from runnel.cli.commands.api import build_api_role
    from runnel.cli.session.serving import (
        build_orchestrator_role,
        build_worker_role,
        load_handlers,
        serve,
    )

    handlers = load_handlers(app, settings, is_private=is_private)

    async def all_roles(site: "RoleDependencies") -> "Role":
        deciding = PairedRole(
            build_orchestrator_role(site), first=build_worker_role(site, handlers)
        )
        return PairedRole(deciding, first=await build_api_role(site, settings, server_socket))

    return asyncio.run(serve(settings, "dev", all_roles, uses_archive=True, serves_http=True))


def _run_embedded(settings: "Settings", app: str | None, server_socket: "socket.socket") -> int:
    import asyncio

    return asyncio.run(serve_embedded(settings, app, server_socket))


# Runs an engine and its HTTP API on a data directory, from the settings to the exit code.


async def serve_embedded(settings: Settings, app: str | None, server_socket: socket.socket) -> int:
    """Until a signal. It goes on with whatever a process that has died left in the directory."""
    make_importable([])
    engine = await build_engine(settings, handlers=_load_handlers(app, settings))
    try:
        configure_logging(
            format_=settings.log_format,
            level=settings.log_level,
            hide=engine.secrets.redact,
            process_fields={"role": "dev"},
        )
        for sentence in find_misspelled_variables():
            engine.event_bus.event(names.SETTING_UNKNOWN, problem=sentence)
        engine.event_bus.event(names.STORE_OPENED, data_dir=str(settings.data_dir))
        metrics = MetricsTelemetry()
        engine.event_bus.add_sink(metrics)
        await engine.claim_home_partition()
        world = ClockAndIds(engine.clock, RandomIdGenerator())
        answering = await build_api(
            settings,
            engine.client,
            engine.backend,
            world,
            server_socket=server_socket,
            feed_broadcaster=engine.feed_broadcaster,
            on_ready=partial(finish_startup, server_socket),
            metrics=metrics,
        )
    except BaseException:
        await engine.backend.close()
        raise
    scheduler = build_scheduler(engine.backend, world, engine.event_bus, engine.client)
    role = PairedRole(EngineRole(engine, [scheduler]), first=answering)
    return await RoleProcess(role, engine.backend, engine.event_bus).run()


def _load_handlers(app: str | None, settings: Settings) -> HandlerRegistry:
    """What a document may call that came over HTTP: own code, and what the settings allow."""
    if app is not None or settings.allowed_functions is not None:
        return load_handlers(app, settings)
    return build_server_handlers(settings, RealClock(), own_modules=_list_own_modules(Path.cwd()))


def _list_own_modules(folder: Path) -> list[str]:
    """Patterns for the functions of its Python files and packages."""
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"can't read '{folder}': {error.strerror}") from error
    files = [f"{each.stem}:*" for each in found if each.suffix == ".py"]
    packages = [f"{each.name}.*" for each in found if (each / "__init__.py").is_file()]
    return files + packages
