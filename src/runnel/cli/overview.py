"""Everything at a glance: what runs, what waits, who works, what just ended."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from runnel.cli.looks import LOOKS
from runnel.cli.tables import Cell
from runnel.cli.unfinished import UNFINISHED
from runnel.cli.words import clock_time, count, duration
from runnel.cli.workers import row_of
from runnel.core.json_types import Json
from runnel.core.states import EXECUTION_FINAL
from runnel.listing import newest_headers
from runnel.operations.queues import QueueLine, lines_of
from runnel.operations.workers import worker_document
from runnel.ports.archive import ExecutionFilter
from runnel.ports.registry import WorkerRecord
from runnel.ports.store import Header
from runnel.runtime.look import Look
from runnel.runtime.names import pid_of
from runnel.settings import Settings
from runnel.views import header_document, moment

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
