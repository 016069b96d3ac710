"""`runnel top`"""

import asyncio
import sys
from collections import Counter
from typing import Annotated

import msgspec
import typer

from runnel.app.process_signals import handle_signals
from runnel.app.stores import NoDataError
from runnel.cli.options import StoreLocation, check_finite, configure
from runnel.cli.render.overview import (
    UNFINISHED_COUNTED_MAX,
    Overview,
    build_headline,
    build_sections,
)
from runnel.cli.render.text import print_styled, print_table, to_compact_json
from runnel.cli.session.open_client import ClientSession, has_data, open_client
from runnel.client.execution_lists import list_newest_executions
from runnel.core.states import FINAL_EXECUTION_STATES, UNFINISHED_STATES
from runnel.core.values import Json
from runnel.errors import StoreError
from runnel.ports.archive import ExecutionFilter
from runnel.views import build_document
from runnel.views.execution import format_time

ROWS_PRINTED_MAX = 10
ENDED_MAX = 100


async def top(
    *,
    is_once: Annotated[
        bool, typer.Option("--once", help="Print the overview once and exit.")
    ] = False,
    every_s: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="SECONDS",
            min=0.2,
            callback=check_finite,
            help="The number of seconds between two updates of the overview.",
        ),
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the overview once, as one JSON object.")
    ] = False,
    location: StoreLocation,
) -> None:
    """Watch executions, queues and workers live.

    Ctrl-C ends the command. If stdout is not a terminal, the overview is printed once.
    """
    settings = configure(location)
    if not has_data(settings):
        print(NoDataError(settings.data_dir), file=sys.stderr)
        return
    async with open_client(settings) as session:
        if as_json:
            print(to_compact_json(to_overview_document(await load_overview(session))))
        elif is_once or not sys.stdout.isatty():
            _print_overview(await load_overview(session))
        else:
            await _watch_overview(session, every_s)


def _print_overview(overview: Overview) -> None:
    print_styled(build_headline(overview))
    for section in build_sections(overview):
        print(f"\n{section.title}")
        if section.rows:
            print_table(section.headers, section.rows[:ROWS_PRINTED_MAX])
            if len(section.rows) > ROWS_PRINTED_MAX:
                print(f"({len(section.rows) - ROWS_PRINTED_MAX:,} more)")
        else:
            print(f"  {section.empty_text}")


async def _watch_overview(session: ClientSession, every_s: float) -> None:
    """Redraws the overview until a signal arrives; shows the error of an unreachable store."""
    from rich.console import Console  # 37 ms: only on a terminal
    from rich.live import Live

    from runnel.cli.render.top_screen import build_screen

    console, stop = Console(highlight=False), asyncio.Event()
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
        workers = [view for view in await operations.workers() if view.status != "dead"]
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
        owners=sorted({view.owner for view in partitions if view.owner and not view.is_silent}),
        queues=queues,
        workers=workers,
    )


def to_overview_document(overview: Overview) -> dict[str, Json]:
    """Returns the JSON object of `--json`, with all executions of the overview."""
    counts = Counter(summary.status.value for summary in overview.unfinished)
    workers, queues = overview.workers, overview.queues
    return {
        "at": format_time(overview.at),
        "running": counts["RUNNING"],
        "pending": counts["PENDING"],
        "is_more": len(overview.unfinished) == UNFINISHED_COUNTED_MAX,
        "dead_letters": overview.dead_letters,
        "under_way": [build_document(summary) for summary in overview.unfinished],
        "ended": [build_document(summary) for summary in overview.ended],
        "queues": None if queues is None else [msgspec.to_builtins(queue) for queue in queues],
        "workers": None if workers is None else [build_document(view) for view in workers],
        "owners": list(overview.owners),
    }
