"""`runnel api`"""

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runnel.cli.metering import MetricsPort
from runnel.cli.options import Place, ServerUrl

if TYPE_CHECKING:
    import socket

    from runnel.cli.serving import Site
    from runnel.runtime.roles import Role
    from runnel.settings import Settings

Host: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to listen. [dim]\\[default: $RUNNEL_API_HOST or 127.0.0.1][/dim]",
        show_default=False,
    ),
]
Port: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="0 is one that is free. [dim]\\[default: $RUNNEL_API_PORT or 8080][/dim]",
        show_default=False,
    ),
]


def api(
    *,
    host: Host = None,
    port: Port = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many processes answer.")] = 1,
    metrics_port: MetricsPort = None,
    redis_url: ServerUrl = None,
    inherited: Annotated[
        int | None, typer.Option("--fd", hidden=True, help="A socket that is listening already.")
    ] = None,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", hidden=True, help="Another one says where they answer.")
    ] = False,
) -> int:
    """Serve the HTTP API of a Redis server, for orchestrators and workers that run elsewhere.

    Without tokens it listens on this machine only: [bold]runnel token create[/bold] makes one.

    Each process shows its own metrics: the second one on the port behind that of --metrics-port,
    and so on.

    SIGTERM or Ctrl-C answers what is under way, a second one ends it at once. It logs to stderr.
    """
    import asyncio

    from runnel.api.server import listen
    from runnel.cli.options import configure_server
    from runnel.cli.serving import serve
    from runnel.cli.several import end_with_parent, supervise
    from runnel.settings import adjusted

    settings = configure_server(Place(redis_url=redis_url))
    settings = adjusted(settings, api_host=host, api_port=port, metrics_port=metrics_port)
    listening = _adopted(inherited) or listen(settings.api_host, settings.api_port)
    if inherited is not None:
        end_with_parent()
    if workers > 1:
        from runnel.cli.metering import ports_for

        command = [*_command(redis_url), "--fd", str(listening.fileno())]
        ports = ports_for(settings.metrics_port, workers)
        first, *others = [[*command, *given] for given in ports]
        commands = [first, *([*each, "--quiet"] for each in others)]
        return asyncio.run(supervise(commands, listening))
    serving = serve(
        settings,
        "api",
        lambda site: answering(site, settings, listening, is_quiet=is_quiet),
        decides=True,
        answers=True,
    )
    return asyncio.run(serving)


async def answering(
    site: "Site", settings: "Settings", listening: "socket.socket", *, is_quiet: bool = False
) -> "Role":
    """The role that answers, for a process that has nothing else to do with the store.

    It says where, unless it `is_quiet`, as soon as it does.
    """
    from runnel.api.build import build_api
    from runnel.runtime.look import look_at

    look = look_at(site.backend, site.world.clock, site.world.ids)
    if site.metrics is not None:
        look.hub.count_by(site.metrics)
    return await build_api(
        settings,
        look.client,
        site.backend,
        site.world,
        listening=listening,
        newsroom=look.newsroom,
        on_answering=partial(settle_in, listening, is_quiet=is_quiet),
        metrics=site.metrics,
    )


def settle_in(listening: "socket.socket", *, is_quiet: bool = False) -> None:
    """A process that answers has loaded all it needs, and says where it answers."""
    import gc
    import sys

    from runnel.api.server import url_of

    # What is loaded stays: to look through its 105,000 objects for garbage took 50 ms (2026-11),
    # every time that enough of others had come, and nobody was answered meanwhile.
    gc.freeze()
    if not is_quiet:
        print(f"Runnel answers on {url_of(listening)}", file=sys.stderr, flush=True)


def _command(redis_url: str | None) -> list[str]:
    """For a child process, which has the same environment."""
    import sys

    url = [] if redis_url is None else ["--redis-url", redis_url]
    return [sys.executable, "-m", "runnel", "api", *url]


def _adopted(number: int | None) -> "socket.socket | None":
    import socket

    return None if number is None else socket.socket(fileno=number)
