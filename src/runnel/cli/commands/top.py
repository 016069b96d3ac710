"""`runnel top`"""

from collections import Counter
from typing import Annotated

import msgspec
import typer

from runnel.app.stores import StoreSession
from runnel.cli import errors as exits
from runnel.cli.options import DataDir, RedisUrl, Server, StoreLocation, check_finite
from runnel.cli.render.overview import (
    UNFINISHED_COUNTED_MAX,
    Overview,
    build_headline,
    build_sections,
)
from runnel.cli.session.takeover import UNFINISHED_STATES
from runnel.client.execution_views import build_header_document
from runnel.client.listing import list_newest_headers
from runnel.client.operations import build_queue_views, build_worker_document
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.core.values import Json
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
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
    from runnel.cli.session.open_client import open_store_session

    async with open_store_session(settings) as look:
        seen = await load_overview(look, settings)
    print(to_compact_json(to_overview_document(seen, settings)))


async def _print_once(settings: "Settings") -> None:
    from runnel.cli.render.text import print_styled, print_table
    from runnel.cli.session.open_client import open_store_session

    async with open_store_session(settings) as look:
        seen = await load_overview(look, settings)
    print_styled(build_headline(seen))
    for section in build_sections(seen, settings):
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
    from runnel.cli.session.open_client import open_store_session
    from runnel.errors import StoreError

    console, stop = Console(highlight=False), asyncio.Event()
    async with open_store_session(settings) as look:
        seen, trouble = await load_overview(look, settings), ""
        with (
            Live(console=console, screen=True, auto_refresh=False) as live,
            handle_signals(lambda _number: stop.set(), before_exit=live.stop),
        ):
            while not stop.is_set():
                page = build_screen(seen, settings, height=console.height, problem=trouble)
                live.update(page, refresh=True)
                if await look.clock.wait(stop, every_s):
                    return
                try:
                    seen, trouble = await load_overview(look, settings), ""
                except StoreError as error:
                    trouble = str(error)


async def load_overview(session: StoreSession, settings: Settings) -> Overview:
    archive, tasks = session.backend.archive, session.backend.tasks
    queues, workers = None, None
    if session.has_workers:
        workers = await tasks.workers()
        queues = build_queue_views(await tasks.queues(), workers, settings)
    store = session.backend.store
    leases = [await store.observe(partition) for partition in await store.partitions()]
    return Overview(
        at=session.clock.now(),
        unfinished=await list_newest_headers(
            archive, ExecutionFilter(states=UNFINISHED_STATES, limit=UNFINISHED_COUNTED_MAX)
        ),
        ended=await list_newest_headers(
            archive, ExecutionFilter(states=tuple(FINAL_EXECUTION_STATES), limit=ENDED_MAX)
        ),
        dead_letters=await archive.count_dead_letters(),
        owners=sorted({lease.owner for lease in leases if lease is not None}),
        queues=queues,
        workers=workers,
    )


def to_overview_document(overview: Overview, settings: Settings) -> dict[str, Json]:
    """As programs get it: what ended most lately, and no more of the rest than is counted."""
    counts = Counter(header.state.value for header in overview.unfinished)
    workers, queues = overview.workers, overview.queues
    return {
        "at": format_time(overview.at),
        "running": counts["RUNNING"],
        "pending": counts["PENDING"],
        "is_more": len(overview.unfinished) == UNFINISHED_COUNTED_MAX,
        "dead_letters": overview.dead_letters,
        "under_way": [build_header_document(each) for each in overview.unfinished],
        "ended": [build_header_document(each) for each in overview.ended],
        "queues": None if queues is None else [msgspec.to_builtins(line) for line in queues],
        "workers": None
        if workers is None
        else [build_worker_document(e, settings) for e in workers],
        "owners": list(overview.owners),
    }
