"""`runnel top`"""

from collections import Counter
from typing import Annotated

import msgspec
import typer

from runnel.cli import errors as exits
from runnel.cli.options import DataDir, RedisUrl, Server, StoreLocation, check_finite
from runnel.cli.render.overview import (
    UNFINISHED_COUNTED_MAX,
    Overview,
    build_headline,
    build_sections,
)
from runnel.cli.session.open_client import ClientSession
from runnel.cli.session.unfinished import UNFINISHED_STATES
from runnel.client.listing import list_newest_executions
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.core.values import Json
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views import build_document
from runnel.views.execution import format_time

ROWS_PRINTED_MAX = 10
ENDED_MAX = 100


def top(
    *,
    is_once: Annotated[
        bool, typer.Option("--once", help="Print it once, instead of again and again.")
    ] = False,
    every_s: Annotated[
        float,
        typer.Option(
            "--every", metavar="SECONDS", min=0.2, callback=check_finite, help="How often to look."
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

    from runnel.app.stores import NoDataError
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import has_data

    settings = configure(StoreLocation(data_dir, redis_url, server))
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
    elif as_json:
        asyncio.run(_print_json(settings))
    elif is_once or not sys.stdout.isatty():
        asyncio.run(_print_once(settings))
    else:
        asyncio.run(_watch_overview(settings, every_s))
    return exits.OK


async def _print_json(settings: "Settings") -> None:
    from runnel.cli.render.text import to_compact_json
    from runnel.cli.session.open_client import open_client

    async with open_client(settings) as session:
        overview = await load_overview(session)
    print(to_compact_json(to_overview_document(overview)))


async def _print_once(settings: "Settings") -> None:
    from runnel.cli.render.text import print_styled, print_table
    from runnel.cli.session.open_client import open_client

    async with open_client(settings) as session:
        overview = await load_overview(session)
    print_styled(build_headline(overview))
    for section in build_sections(overview):
        print(f"\n{section.title}")
        if section.rows:
            print_table(section.headers, section.rows[:ROWS_PRINTED_MAX])
            if len(section.rows) > ROWS_PRINTED_MAX:
                print(f"({len(section.rows) - ROWS_PRINTED_MAX:,} more)")
        else:
            print(f"  {section.empty_text}")


async def _watch_overview(settings: "Settings", every_s: float) -> None:
    """Until a signal; a server that does not answer is told, and asked again."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from runnel.app.process_signals import handle_signals
    from runnel.cli.render.top_screen import build_screen
    from runnel.cli.session.open_client import open_client
    from runnel.errors import StoreError

    console, stop = Console(highlight=False), asyncio.Event()
    async with open_client(settings) as session:
        overview, problem = await load_overview(session), ""
        with (
            Live(console=console, screen=True, auto_refresh=False) as live,
            handle_signals(lambda _number: stop.set(), before_exit=live.stop),
        ):
            while not stop.is_set():
                page = build_screen(overview, height=console.height, problem=problem)
                live.update(page, refresh=True)
                if await session.clock.wait(stop, every_s):
                    return
                try:
                    overview, problem = await load_overview(session), ""
                except StoreError as error:
                    problem = str(error)


async def load_overview(session: ClientSession) -> Overview:
    client, operations = session.client, session.operations
    queues, workers = None, None
    if session.has_workers:
        workers = [view for view in await operations.workers() if view.state != "dead"]
        queues = await operations.queues()
    partitions = await operations.partitions()
    return Overview(
        at=session.clock.now(),
        unfinished=await list_newest_executions(
            client, ExecutionFilter(states=UNFINISHED_STATES, limit=UNFINISHED_COUNTED_MAX)
        ),
        ended=await list_newest_executions(
            client, ExecutionFilter(states=tuple(FINAL_EXECUTION_STATES), limit=ENDED_MAX)
        ),
        dead_letters=await client.dead_letters.count(),
        owners=sorted({each.owner for each in partitions if each.owner and not each.is_silent}),
        queues=queues,
        workers=workers,
    )


def to_overview_document(overview: Overview) -> dict[str, Json]:
    """As programs get it: what ended most lately, and no more of the rest than is counted."""
    counts = Counter(summary.status.value for summary in overview.unfinished)
    workers, queues = overview.workers, overview.queues
    return {
        "at": format_time(overview.at),
        "running": counts["RUNNING"],
        "pending": counts["PENDING"],
        "is_more": len(overview.unfinished) == UNFINISHED_COUNTED_MAX,
        "dead_letters": overview.dead_letters,
        "under_way": [build_document(each) for each in overview.unfinished],
        "ended": [build_document(each) for each in overview.ended],
        "queues": None if queues is None else [msgspec.to_builtins(line) for line in queues],
        "workers": None if workers is None else [build_document(view) for view in workers],
        "owners": list(overview.owners),
    }
