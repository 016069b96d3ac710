"""`runnel orchestrator`"""

from typing import Annotated, TypeAlias

import typer

from runnel.cli.metering import MetricsPort
from runnel.cli.options import Place, ServerUrl

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
    metrics_port: MetricsPort = None,
    redis_url: ServerUrl = None,
    take_archive: TakeArchive = False,
) -> int:
    """Decide what runs next, for executions on a Redis server.

    Any number of them share the work, and take over from one that dies.

    SIGTERM or Ctrl-C ends it in good order, a second one at once. It logs to stderr.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.serving import orchestrating, serve
    from runnel.errors import InputError
    from runnel.settings import adjusted

    settings = configure_server(Place(redis_url=redis_url))
    settings = adjusted(settings, metrics_port=metrics_port)
    if take_archive and not settings.has_postgres:
        raise InputError("--take-archive: expected POSTGRES_URL to name the archive, got nothing")
    serving = serve(
        settings,
        "orchestrator",
        orchestrating,
        decides=True,
        works=False,
        takes_archive=take_archive,
    )
    return asyncio.run(serving)
