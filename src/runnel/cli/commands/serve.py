"""`runnel orchestrator`"""

from typing import Annotated, TypeAlias

import typer

from runnel.cli.commands.run import Concurrency
from runnel.cli.options import DefaultedRedisUrl, StoreLocation
from runnel.cli.session.serving import MetricsPortOption

TakeArchive: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--take-archive",
        help="The archive in PostgreSQL belongs to this Redis from now on: for one that takes the "
        "place of another which is gone for good.",
    ),
]


def orchestrator(
    *,
    metrics_port: MetricsPortOption = None,
    redis_url: DefaultedRedisUrl = None,
    take_archive: TakeArchive = False,
) -> int:
    """Decide what runs next, for executions on a Redis server.

    Any number of them share the work, and take over from one that dies.

    SIGTERM or Ctrl-C ends it in good order, a second one at once. It logs to stderr.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.session.serving import build_orchestrator_role, serve
    from runnel.errors import InputError
    from runnel.settings import override_settings

    settings = configure_server(StoreLocation(redis_url=redis_url))
    settings = override_settings(settings, metrics_port=metrics_port)
    if take_archive and not settings.has_postgres:
        raise InputError("--take-archive: expected POSTGRES_URL to name the archive, got nothing")
    serving = serve(
        settings,
        "orchestrator",
        build_orchestrator_role,
        uses_archive=True,
        runs_tasks=False,
        takes_archive=take_archive,
    )
    return asyncio.run(serving)


# `runnel worker`

QueuesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="Tasks of these queues; a node's queue is its handler's name, unless it says another. "
        "[default: those of its handlers]",
        show_default=False,
    ),
]
AppOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Your code, looked for from the working directory: a HandlerRegistry, or a module of "
        "tasks, which is imported at the start.",
        show_default=False,
    ),
]


def worker(
    *,
    queues: QueuesOption = None,
    app: AppOption = None,
    concurrency: Concurrency = None,
    metrics_port: MetricsPortOption = None,
    redis_url: DefaultedRedisUrl = None,
) -> int:
    """Run tasks that are queued on a Redis server.

    Documents may only call functions and programs that RUNNEL_ALLOW_PYTHON and RUNNEL_ALLOW_SHELL
    name; and those that your own module, given by --app, defines.

    SIGTERM or Ctrl-C lets running tasks finish, a second one ends them. It logs to stderr.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.session.serving import build_worker_role, load_handlers, parse_queues, serve
    from runnel.settings import override_settings

    settings = configure_server(StoreLocation(redis_url=redis_url), concurrency=concurrency)
    settings = override_settings(settings, metrics_port=metrics_port)
    handlers = load_handlers(app, settings)
    wanted = parse_queues(queues, handlers)
    return asyncio.run(
        serve(
            settings,
            "worker",
            lambda site: build_worker_role(site, handlers, wanted),
            uses_archive=False,
        )
    )
