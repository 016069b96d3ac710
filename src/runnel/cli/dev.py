"""`runnel dev`"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.options import Place, ServerUrl
from runnel.cli.run import Concurrency
from runnel.cli.worker import App

if TYPE_CHECKING:
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
    redis_url: ServerUrl = None,
) -> int:
    """Try the server set-up on one machine: an orchestrator and a worker in one process.

    Prints what to set in another terminal: [bold]runnel run[/bold] there hands its work to them.

    Ctrl-C ends everything.
    """
    from runnel.cli.options import configure
    from runnel.errors import InputError
    from runnel.settings import adjusted

    settings = configure(Place(redis_url=redis_url), concurrency=concurrency)
    if not with_servers:
        if not settings.has_redis:
            raise InputError(
                "runnel dev needs a Redis: give --with-servers for a private one, or --redis-url"
            )
        return _serve(settings, app)
    if redis_url is not None:
        raise InputError("--with-servers and --redis-url are two servers; give only one of them")
    from runnel.runtime.servers import PostgresServer, RedisServer

    with RedisServer() as redis, PostgresServer() as postgres:
        print("in another terminal:", file=sys.stderr)
        print(f"export REDIS_URL={redis.url} POSTGRES_URL={postgres.url}", flush=True)
        servers = adjusted(settings, redis_url=redis.url, postgres_url=postgres.url)
        return _serve(servers, app, is_private=True)


def _serve(settings: "Settings", app: str | None, *, is_private: bool = False) -> int:
    import asyncio

    from runnel.cli.serving import handlers_of, orchestrating, serve, working
    from runnel.runtime.roles import BothRoles

    handlers = handlers_of(app, settings, is_private=is_private)
    return asyncio.run(
        serve(
            settings,
            "dev",
            lambda site: BothRoles(orchestrating(site), working(site, handlers)),
            decides=True,
        )
    )
