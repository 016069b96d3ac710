"""`runnel dev`"""

import asyncio
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from runnel.api.app import build_api
from runnel.api.server import listen
from runnel.app.embedded_engine import ClockAndIds
from runnel.app.roles import EngineRole, PairedRole, Role, RoleProcess
from runnel.app.wiring import (
    build_engine,
    build_scheduler,
    build_server_handlers,
    load_handlers,
)
from runnel.authoring.registry import HandlerRegistry
from runnel.cli.commands.api import HostOption, PortOption, build_api_role, finish_startup
from runnel.cli.commands.serve import AppOption
from runnel.cli.options import Concurrency, DirectLocation, configure
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.server_roles import (
    RoleDependencies,
    build_orchestrator_role,
    build_worker_role,
    parse_queues,
    serve,
)
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError
from runnel.ports import telemetry as names
from runnel.settings import find_misspelled_variables, override_settings
from runnel.settings.model import Settings
from runnel.telemetry.logs import configure_logging
from runnel.telemetry.metrics import MetricsTelemetry


def dev(
    *,
    with_servers: Annotated[
        bool,
        typer.Option(
            "--with-servers",
            help="Start private Redis and PostgreSQL servers; both are removed "
            "when this command ends.",
        ),
    ] = False,
    app: AppOption = None,
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="With Redis: the queues to take tasks from. [dim]\\[default: every queue][/dim]",
        ),
    ] = None,
    concurrency: Concurrency = None,
    host: HostOption = None,
    port: PortOption = None,
    location: DirectLocation,
) -> int:
    """Run orchestrator, worker and HTTP API in one process, for development.

    By default, the process uses a data directory and no server. With Redis, [bold]runnel run[/bold]
    in another terminal submits to this process; --with-servers prints the settings for that
    terminal.

    Workflows that arrive over HTTP may call the functions of Python files in the working directory.
    --app, RUNNEL_ALLOW_PYTHON and RUNNEL_ALLOW_SHELL allow more functions and programs.

    Ctrl-C ends the process and its private servers.
    """
    if with_servers and location != DirectLocation():
        other = "--data-dir" if location.redis_url is None else "--redis-url"
        raise InputError(f"--with-servers and {other} name two stores; give only one of them")
    settings = configure(location, concurrency=concurrency)
    settings = override_settings(settings, api_host=host, api_port=port)
    if queues is not None and not (with_servers or settings.has_redis):
        raise InputError(
            "--queues: a data directory has no other worker for the other queues; use Redis, for "
            "example with --with-servers"
        )
    listening = listen(settings.api_host, settings.api_port)
    if not with_servers:
        if settings.has_redis:
            return _serve_on_servers(settings, app, queues, listening)
        return asyncio.run(_serve_embedded(settings, app, listening))
    # Without --with-servers, the packages for Redis and PostgreSQL need not be installed.
    from runnel.app.private_servers.postgres import PostgresServer
    from runnel.app.private_servers.redis import RedisServer

    with RedisServer() as redis, PostgresServer() as postgres:
        print("in another terminal:", file=sys.stderr)
        print(f"export REDIS_URL={redis.url} POSTGRES_URL={postgres.url}", flush=True)
        servers = override_settings(settings, redis_url=redis.url, postgres_url=postgres.url)
        # Tasks that call runnel.run or runnel.submit read these variables.
        os.environ.update(REDIS_URL=redis.url, POSTGRES_URL=postgres.url)
        return _serve_on_servers(servers, app, queues, listening, is_private=True)


def _serve_on_servers(
    settings: Settings,
    app: list[str] | None,
    queues: str | None,
    server_socket: socket.socket,
    *,
    is_private: bool = False,
) -> int:
    handlers = load_handlers(app, settings, is_private=is_private)
    queue_keys = None if queues is None else parse_queues(queues, handlers, settings, app)

    async def build_roles(dependencies: RoleDependencies) -> Role:
        engine = PairedRole(
            build_orchestrator_role(dependencies),
            first=build_worker_role(dependencies, handlers, queue_keys),
        )
        api = await build_api_role(dependencies, settings, server_socket)
        return PairedRole(engine, first=api)

    return asyncio.run(serve(settings, "dev", build_roles, uses_archive=True, serves_http=True))


async def _serve_embedded(
    settings: Settings, app: list[str] | None, server_socket: socket.socket
) -> int:
    """Runs an engine and its HTTP API on a data directory until a signal; returns the exit code.

    The engine resumes unfinished executions of dead processes in the directory.
    """
    make_importable([])
    engine = await build_engine(settings, handlers=_load_handlers(app, settings), serves=True)
    try:
        configure_logging(
            format_=settings.log_format,
            level=settings.log_level,
            hide=engine.secrets.redact,
            process_fields={"role": "dev"},
        )
        for sentence in find_misspelled_variables():
            engine.event_bus.event(names.SETTING_UNKNOWN, problem=sentence)
        engine.event_bus.log_executions()
        engine.event_bus.event(names.STORE_OPENED, data_dir=str(settings.data_dir))
        metrics = MetricsTelemetry()
        engine.event_bus.add_sink(metrics)
        await engine.claim_home_partition()
        clock_and_ids = ClockAndIds(engine.clock, RandomIdGenerator())
        api = await build_api(
            settings,
            engine.client,
            engine.backend,
            clock_and_ids,
            server_socket=server_socket,
            feed_reader=engine.feed_reader,
            on_ready=partial(finish_startup, server_socket),
            metrics=metrics,
        )
    except BaseException:
        await engine.backend.close()
        raise
    scheduler = build_scheduler(engine.backend, clock_and_ids, engine.event_bus, engine.client)
    role = PairedRole(EngineRole(engine, [scheduler]), first=api)
    return await RoleProcess(role, engine.backend, engine.event_bus).run()


def _load_handlers(app: list[str] | None, settings: Settings) -> HandlerRegistry:
    """Returns the handlers that workflows submitted over HTTP may call.

    Without an app and RUNNEL_ALLOW_PYTHON, workflows may call the Python files of the working
    directory.
    """
    if app or settings.allowed_functions is not None:
        return load_handlers(app, settings)
    return build_server_handlers(settings, RealClock(), own_folder=Path.cwd())
