"""`runnel dev`"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.api import Host, Port
from runnel.cli.options import DataDir, Place, RedisUrl
from runnel.cli.run import Concurrency
from runnel.cli.worker import App

if TYPE_CHECKING:
    import socket

    from runnel.cli.serving import Site
    from runnel.runtime.roles import Role
    from runnel.settings import Settings


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
    from runnel.runtime.servers import PostgresServer, RedisServer

    with RedisServer() as redis, PostgresServer() as postgres:
        print("in another terminal:", file=sys.stderr)
        print(f"export REDIS_URL={redis.url} POSTGRES_URL={postgres.url}", flush=True)
        servers = adjusted(settings, redis_url=redis.url, postgres_url=postgres.url)
        return _serve(servers, app, listening, is_private=True)


def _serve(
    settings: "Settings", app: str | None, listening: "socket.socket", *, is_private: bool = False
) -> int:
    import asyncio

    from runnel.cli.api import answering
    from runnel.cli.serving import handlers_of, orchestrating, serve, working
    from runnel.runtime.roles import BothRoles, Together

    handlers = handlers_of(app, settings, is_private=is_private)

    async def all_roles(site: "Site") -> "Role":
        deciding = BothRoles(orchestrating(site), working(site, handlers))
        return Together(deciding, first=await answering(site, settings, listening))

    return asyncio.run(serve(settings, "dev", all_roles, decides=True, answers=True))


def _serve_embedded(settings: "Settings", app: str | None, listening: "socket.socket") -> int:
    import asyncio

    from runnel.cli.embedded import serve_embedded

    return asyncio.run(serve_embedded(settings, app, listening))
