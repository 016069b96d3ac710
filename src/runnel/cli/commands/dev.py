"""`runnel dev`"""

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.api.app import build_api
from runnel.app.engine import World
from runnel.app.roles import EngineRole, Process, Together
from runnel.app.wiring import build_engine, build_scheduler, server_handlers
from runnel.authoring.registry import HandlerRegistry
from runnel.cli.commands.api import Host, Port, settle_in
from runnel.cli.commands.run import Concurrency
from runnel.cli.commands.serve import App
from runnel.cli.options import DataDir, Place, RedisUrl
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.serving import handlers_of
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import InputError
from runnel.ports import telemetry as names
from runnel.settings import look_alikes
from runnel.settings.model import Settings
from runnel.telemetry.logs import write_logs
from runnel.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from runnel.app.roles import Role
    from runnel.cli.session.serving import Site


def dev(
    *,
    with_servers: Annotated[
        bool,
        typer.Option(
            "--with-servers",
            help="Start private servers, Redis and PostgreSQL, gone when this command ends.",
        ),
    ] = False,
    app: App = None,
    concurrency: Concurrency = None,
    host: Host = None,
    port: Port = None,
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
    from runnel.settings import adjusted

    if with_servers and (redis_url is not None or data_dir is not None):
        other = "--data-dir" if redis_url is None else "--redis-url"
        raise InputError(f"--with-servers and {other} are two places; give only one of them")
    settings = configure(Place(data_dir, redis_url), concurrency=concurrency)
    settings = adjusted(settings, api_host=host, api_port=port)
    listening = listen(settings.api_host, settings.api_port)
    if not with_servers:
        if settings.has_redis:
            return _serve(settings, app, listening)
        return _serve_embedded(settings, app, listening)
    from runnel.app.private_servers.postgres import PostgresServer
    from runnel.app.private_servers.redis import RedisServer

    with RedisServer() as redis, PostgresServer() as postgres:
        print("in another terminal:", file=sys.stderr)
        print(f"export REDIS_URL={redis.url} POSTGRES_URL={postgres.url}", flush=True)
        servers = adjusted(settings, redis_url=redis.url, postgres_url=postgres.url)
        return _serve(servers, app, listening, is_private=True)


def _serve(
    settings: "Settings", app: str | None, listening: "socket.socket", *, is_private: bool = False
) -> int:
    import asyncio

    from runnel.app.roles import BothRoles, Together
    from runnel.cli.commands.api import answering
    from runnel.cli.session.serving import handlers_of, orchestrating, serve, working

    handlers = handlers_of(app, settings, is_private=is_private)

    async def all_roles(site: "Site") -> "Role":
        deciding = BothRoles(orchestrating(site), working(site, handlers))
        return Together(deciding, first=await answering(site, settings, listening))

    return asyncio.run(serve(settings, "dev", all_roles, decides=True, answers=True))


def _serve_embedded(settings: "Settings", app: str | None, listening: "socket.socket") -> int:
    import asyncio

    return asyncio.run(serve_embedded(settings, app, listening))


# Runs an engine and its HTTP API on a data directory, from the settings to the exit code.


async def serve_embedded(settings: Settings, app: str | None, listening: socket.socket) -> int:
    """Until a signal. It goes on with whatever a process that has died left in the directory."""
    make_importable([])
    engine = await build_engine(settings, handlers=_handlers(app, settings))
    try:
        write_logs(
            format_=settings.log_format,
            level=settings.log_level,
            hide=engine.secrets.hide,
            about={"role": "dev"},
        )
        for sentence in look_alikes():
            engine.hub.event(names.SETTING_UNKNOWN, problem=sentence)
        engine.hub.event(names.STORE_OPENED, data_dir=str(settings.data_dir))
        metrics = Metrics()
        engine.hub.count_by(metrics)
        await engine.claim_home()
        world = World(engine.clock, RealIds())
        answering = await build_api(
            settings,
            engine.client,
            engine.backend,
            world,
            listening=listening,
            newsroom=engine.newsroom,
            on_answering=partial(settle_in, listening),
            metrics=metrics,
        )
    except BaseException:
        await engine.backend.close()
        raise
    scheduler = build_scheduler(engine.backend, world, engine.hub, engine.client)
    role = Together(EngineRole(engine, [scheduler]), first=answering)
    return await Process(role, engine.backend, engine.hub).run()


def _handlers(app: str | None, settings: Settings) -> HandlerRegistry:
    """What a document may call that came over HTTP: own code, and what the settings allow."""
    if app is not None or settings.allowed_functions is not None:
        return handlers_of(app, settings)
    return server_handlers(settings, RealClock(), own_modules=_own_modules(Path.cwd()))


def _own_modules(folder: Path) -> list[str]:
    """Patterns for the functions of its Python files and packages."""
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"can't read '{folder}': {error.strerror}") from error
    files = [f"{each.stem}:*" for each in found if each.suffix == ".py"]
    packages = [f"{each.name}.*" for each in found if (each / "__init__.py").is_file()]
    return files + packages
