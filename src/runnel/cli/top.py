"""`runnel top`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import DataDir, Place, RedisUrl, Server, finite

if TYPE_CHECKING:
    from runnel.settings import Settings

ROWS_ONCE = 10


def top(
    *,
    is_once: Annotated[
        bool, typer.Option("--once", help="Print it once, instead of again and again.")
    ] = False,
    every_s: Annotated[
        float,
        typer.Option(
            "--every", metavar="SECONDS", min=0.2, callback=finite, help="How often to look."
        ),
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print it once, as JSON.")] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Watch everything at a glance: executions, queues, workers. Ctrl-C ends it.

    Without a terminal it is printed once.
    """
    import asyncio
    import sys

    from runnel.cli.opening import has_data
    from runnel.cli.options import configure
    from runnel.runtime.look import NoDataError

    settings = configure(Place(data_dir, redis_url, server))
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif as_json:
        asyncio.run(_print_json(settings))
    elif is_once or not sys.stdout.isatty():
        asyncio.run(_print_once(settings))
    else:
        asyncio.run(_watch(settings, every_s))
    return exits.OK


async def _print_json(settings: "Settings") -> None:
    from runnel.cli.opening import looking
    from runnel.cli.overview import look_over, overview_document
    from runnel.cli.words import compact

    async with looking(settings) as look:
        seen = await look_over(look, settings)
    print(compact(overview_document(seen, settings)))


async def _print_once(settings: "Settings") -> None:
    from runnel.cli.opening import looking
    from runnel.cli.overview import headline, look_over, sections
    from runnel.cli.tables import print_styled, print_table

    async with looking(settings) as look:
        seen = await look_over(look, settings)
    print_styled(headline(seen))
    for section in sections(seen, settings):
        print(f"\n{section.title}")
        if section.rows:
            print_table(section.heads, section.rows[:ROWS_ONCE])
            if len(section.rows) > ROWS_ONCE:
                print(f"({len(section.rows) - ROWS_ONCE:,} more)")
        else:
            print(f"  {section.otherwise}")


async def _watch(settings: "Settings", every_s: float) -> None:
    """Until a signal; a server that does not answer is told, and asked again."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from runnel.cli.opening import looking
    from runnel.cli.overview import look_over
    from runnel.cli.screens import screen
    from runnel.errors import StoreError
    from runnel.runtime.interrupts import hearing

    console, stop = Console(highlight=False), asyncio.Event()
    async with looking(settings) as look:
        seen, trouble = await look_over(look, settings), ""
        with (
            Live(console=console, screen=True, auto_refresh=False) as live,
            hearing(lambda _number: stop.set(), at_last=live.stop),
        ):
            while not stop.is_set():
                page = screen(seen, settings, height=console.height, trouble=trouble)
                live.update(page, refresh=True)
                if await look.clock.wait(stop, every_s):
                    return
                try:
                    seen, trouble = await look_over(look, settings), ""
                except StoreError as error:
                    trouble = str(error)
