"""`runnel top`"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import typer

from runnel.app.process_signals import pid_of
from runnel.app.stores import Look
from runnel.cli import errors as exits
from runnel.cli.commands.queues import row_of
from runnel.cli.options import DataDir, Place, RedisUrl, Server, finite
from runnel.cli.render.text import LOOKS, Cell, clock_time, count, duration
from runnel.cli.session.takeover import UNFINISHED
from runnel.client.listing import newest_headers
from runnel.client.operations import QueueLine, lines_of, worker_document
from runnel.core.states import EXECUTION_FINAL
from runnel.core.values import Json
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header
from runnel.ports.workers import WorkerRecord
from runnel.settings.model import Settings
from runnel.views.execution import header_document, moment

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

    from runnel.app.stores import NoDataError
    from runnel.cli.options import configure
    from runnel.cli.session.open_client import has_data

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
    from runnel.cli.render.text import compact
    from runnel.cli.session.open_client import looking

    async with looking(settings) as look:
        seen = await look_over(look, settings)
    print(compact(overview_document(seen, settings)))


async def _print_once(settings: "Settings") -> None:
    from runnel.cli.render.text import print_styled, print_table
    from runnel.cli.session.open_client import looking

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

    from runnel.app.process_signals import hearing
    from runnel.cli.render.top_screen import screen
    from runnel.cli.session.open_client import looking
    from runnel.errors import StoreError

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


# Everything at a glance: what runs, what waits, who works, what just ended.

# More are counted as "500+": what is on the screen are a few of them anyway.
COUNTED_MAX = 500
ENDED_MAX = 100


class Section(NamedTuple):
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    otherwise: str
    """What is said instead of a table without rows."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """`queues` and `workers` are None where tasks are in the memory of each process."""

    at: float
    unfinished: Sequence[Header]
    ended: Sequence[Header]
    dead_letters: int
    owners: Sequence[str]
    queues: Sequence[QueueLine] | None = None
    workers: Sequence[WorkerRecord] | None = None


async def look_over(look: Look, settings: Settings) -> Overview:
    archive, tasks = look.backend.archive, look.backend.tasks
    queues, workers = None, None
    if look.has_workers:
        workers = await tasks.workers()
        queues = lines_of(await tasks.queues(), workers, settings)
    store = look.backend.store
    leases = [await store.observe(partition) for partition in await store.partitions()]
    return Overview(
        at=look.clock.now(),
        unfinished=await newest_headers(
            archive, ExecutionFilter(states=UNFINISHED, limit=COUNTED_MAX)
        ),
        ended=await newest_headers(
            archive, ExecutionFilter(states=tuple(EXECUTION_FINAL), limit=ENDED_MAX)
        ),
        dead_letters=await archive.count_dead_letters(),
        owners=sorted({lease.owner for lease in leases if lease is not None}),
        queues=queues,
        workers=workers,
    )


def headline(seen: Overview) -> list[Cell]:
    counts = Counter(header.state.value for header in seen.unfinished)
    plus = "+" if len(seen.unfinished) == COUNTED_MAX else ""
    cells = [Cell(f"runnel top  {clock_time(seen.at)[:8]}  ", "bold")]
    cells += [
        Cell(f"{counts[state]:,}{plus} {state.lower()}  ", LOOKS[state].style)
        for state in ("RUNNING", "PENDING")
    ]
    if seen.dead_letters:
        letters = count(seen.dead_letters, "dead letter")
        cells.append(Cell(f"{letters} (runnel dlq list)  ", LOOKS["FAILED"].style))
    return cells


def overview_document(seen: Overview, settings: Settings) -> dict[str, Json]:
    """As programs get it: what ended most lately, and no more of the rest than is counted."""
    counts = Counter(header.state.value for header in seen.unfinished)
    workers, queues = seen.workers, seen.queues
    return {
        "at": moment(seen.at),
        "running": counts["RUNNING"],
        "pending": counts["PENDING"],
        "is_more": len(seen.unfinished) == COUNTED_MAX,
        "dead_letters": seen.dead_letters,
        "under_way": [header_document(each) for each in seen.unfinished],
        "ended": [header_document(each) for each in seen.ended],
        "queues": None if queues is None else [msgspec.to_builtins(line) for line in queues],
        "workers": None if workers is None else [worker_document(e, settings) for e in workers],
        "owners": list(seen.owners),
    }


def sections(seen: Overview, settings: Settings) -> list[Section]:
    found = [
        Section("under way", _HEADS, [_row(each, seen.at) for each in seen.unfinished], "nothing"),
        Section("ended", _HEADS, [_row(each, seen.at) for each in seen.ended], "nothing yet"),
    ]
    if seen.queues is not None and seen.workers is not None:
        found += [
            Section("queues", _QUEUE_HEADS, [_queue(line) for line in seen.queues], "none"),
            Section(
                "workers",
                ["WORKER", "STATE", "BUSY", "UP FOR", "LAST SIGN", "QUEUES"],
                [row_of(each, settings, seen.at) for each in seen.workers],
                "none; start one with: runnel worker",
            ),
        ]
    who = "processes that run executions" if seen.workers is None else "orchestrators"
    return [*found, Section(who, ["NAME", ""], [_owner(each) for each in seen.owners], "none")]


_HEADS = ("ID", "WORKFLOW", "STATUS", "TOOK", "")
_QUEUE_HEADS = ("QUEUE", "WAITING", "OLDEST", "WORKERS", "")


def _row(header: Header, now: float) -> list[Cell]:
    look = LOOKS[header.state]
    took = (header.finished_at or now) - (header.started_at or now)
    return [
        Cell(header.execution_id),
        Cell(header.workflow, "bold"),
        Cell(f"{look.glyph} {header.state}", look.style),
        Cell(duration(took) if header.started_at else "", "dim"),
        Cell(" ".join((header.error or "").split()), "red"),
    ]


def _queue(line: QueueLine) -> list[Cell]:
    return [
        Cell(line.queue),
        Cell(f"{line.waiting:,}", "bold" if line.waiting else "dim"),
        Cell(duration(line.oldest_s) if line.waiting else "", "dim"),
        Cell(str(line.workers), "" if line.workers else "yellow"),
        Cell(line.problem, "red"),
    ]


def _owner(name: str) -> list[Cell]:
    pid = pid_of(name)
    return [Cell(name), Cell("" if pid is None else f"pid {pid}", "dim")]
