"""`runnel orchestrator` and `runnel worker`"""

import asyncio
from typing import Annotated, TypeAlias

import typer

from runnel.app.wiring import load_handlers
from runnel.cli.options import Concurrency, RedisLocation, configure_server
from runnel.cli.session.server_roles import (
    MetricsPortOption,
    build_orchestrator_role,
    build_worker_role,
    parse_queues,
    serve,
)
from runnel.errors import InputError
from runnel.settings import override_settings

TakeArchive: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--take-archive",
        help="Make this Redis server the owner of the PostgreSQL archive. Use this option only if "
        "the former Redis server of the archive is lost for good.",
    ),
]


async def orchestrator(
    *,
    metrics_port: MetricsPortOption = None,
    location: RedisLocation,
    take_archive: TakeArchive = False,
) -> int:
    """Run an orchestrator, which schedules the tasks of executions on a Redis server.

    Several orchestrators share the work. If one dies, the others take over its executions.

    SIGTERM or Ctrl-C shuts the orchestrator down cleanly; a second signal ends it at once. Log
    lines go to stderr.
    """
    settings = override_settings(configure_server(location), metrics_port=metrics_port)
    if take_archive and not settings.has_postgres:
        raise InputError("--take-archive: expected POSTGRES_URL to name the archive, got nothing")
    return await serve(
        settings,
        "orchestrator",
        build_orchestrator_role,
        uses_archive=True,
        runs_tasks=False,
        takes_archive=take_archive,
    )


QueuesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="The queues to take tasks from. A node's queue is the name of its handler, unless "
        "the node sets another. [dim]\\[default: the queues of the worker's handlers][/dim]",
    ),
]
AppOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Your HandlerRegistry, or a module of tasks, imported from the working directory "
        "at the start. Repeat the option for several modules.",
    ),
]


def worker(
    *,
    queues: QueuesOption = None,
    app: AppOption = None,
    concurrency: Concurrency = None,
    metrics_port: MetricsPortOption = None,
    location: RedisLocation,
) -> int:
    """Run a worker, which runs tasks from queues on a Redis server.

    A workflow file may call only the functions and programs that RUNNEL_ALLOW_PYTHON and
    RUNNEL_ALLOW_SHELL name, and the functions that the module of --app defines. A worker without
    --app and RUNNEL_ALLOW_PYTHON takes no tasks of the queue python.

    After SIGTERM or Ctrl-C running tasks may finish; a second signal ends them. Log lines go to
    stderr.
    """
    settings = configure_server(location, concurrency=concurrency)
    settings = override_settings(settings, metrics_port=metrics_port)
    handlers = load_handlers(app, settings)  # imports user code: outside the event loop
    queue_keys = parse_queues(queues, handlers, settings, app)
    serving = serve(
        settings,
        "worker",
        lambda dependencies: build_worker_role(dependencies, handlers, queue_keys),
        uses_archive=False,
    )
    return asyncio.run(serving)
