"""Builds the tables of `runnel top`: executions, queues, workers and orchestrators."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from runnel.app.process_signals import parse_engine_pid
from runnel.cli.render.text import (
    STATE_STYLES,
    Cell,
    format_clock_time,
    format_count,
    format_duration,
)
from runnel.client.operations import to_queue_name
from runnel.views.execution import ExecutionSummary
from runnel.views.operations import QueueView, WorkerView

# If there are more unfinished executions, the headline says "500+".
UNFINISHED_COUNTED_MAX = 500
QUEUE_HEADERS = ("QUEUE", "WAITING", "OLDEST", "WORKERS", "")
WORKER_HEADERS = ("WORKER", "STATUS", "BUSY", "UP FOR", "LAST SIGN", "QUEUES")
_EXECUTION_HEADERS = ("ID", "WORKFLOW", "STATUS", "TOOK", "")
_OWNER_HEADERS = ("NAME", "")
_WORKER_STYLES = {"alive": "green", "draining": "yellow", "silent": "yellow", "dead": "red"}


class OverviewSection(NamedTuple):
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty_text: str
    """The text that is printed instead of an empty table."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `runnel top`.

    `queues` and `workers` are None for a data directory, whose tasks are in the memory of
    processes.
    """

    at: float
    unfinished: Sequence[ExecutionSummary]
    ended: Sequence[ExecutionSummary]
    dead_letters: int
    owners: Sequence[str]
    queues: Sequence[QueueView] | None = None
    workers: Sequence[WorkerView] | None = None


def build_headline(overview: Overview) -> list[Cell]:
    counts = Counter(summary.status.value for summary in overview.unfinished)
    plus = "+" if len(overview.unfinished) == UNFINISHED_COUNTED_MAX else ""
    cells = [Cell(f"runnel top  {format_clock_time(overview.at)[:8]}  ", "bold")]
    cells += [
        Cell(f"{counts[state]:,}{plus} {state.lower()}  ", STATE_STYLES[state].style)
        for state in ("RUNNING", "PENDING")
    ]
    if overview.dead_letters:
        letters = format_count(overview.dead_letters, "dead letter")
        cells.append(Cell(f"{letters} (runnel dlq list)  ", STATE_STYLES["FAILED"].style))
    return cells


def build_sections(overview: Overview) -> list[OverviewSection]:
    now = overview.at
    unfinished = [_build_execution_row(summary, now) for summary in overview.unfinished]
    ended = [_build_execution_row(summary, now) for summary in overview.ended]
    sections = [
        OverviewSection("under way", _EXECUTION_HEADERS, unfinished, "nothing"),
        OverviewSection("ended", _EXECUTION_HEADERS, ended, "nothing yet"),
    ]
    if overview.queues is not None and overview.workers is not None:
        queues = [build_queue_row(queue) for queue in overview.queues]
        workers = [build_worker_row(worker, now) for worker in overview.workers]
        no_workers = "none; start one with: runnel worker"
        sections += [
            OverviewSection("queues", QUEUE_HEADERS, queues, "none"),
            OverviewSection("workers", WORKER_HEADERS, workers, no_workers),
        ]
    title = "processes that run executions" if overview.workers is None else "orchestrators"
    owners = [_build_owner_row(owner) for owner in overview.owners]
    return [*sections, OverviewSection(title, _OWNER_HEADERS, owners, "none")]


def build_queue_row(queue: QueueView) -> list[Cell]:
    return [
        Cell(queue.queue),
        Cell(f"{queue.waiting:,}", "bold" if queue.waiting else "dim"),
        Cell(format_duration(queue.oldest_s) if queue.waiting else "", "dim"),
        Cell(str(queue.workers), "" if queue.workers else "yellow"),
        Cell(queue.problem, "red"),
    ]


def build_worker_row(worker: WorkerView, now: float) -> list[Cell]:
    state = Cell(worker.status, _WORKER_STYLES[worker.status])
    if worker.host is None:
        return [Cell(worker.worker), state, *[Cell("")] * 4]
    queues = "all" if worker.queues is None else ", ".join(map(to_queue_name, worker.queues))
    is_dead, started_at = worker.status == "dead", worker.started_at or now
    return [
        Cell(worker.worker),
        state,
        Cell("" if is_dead else _format_load(worker)),
        Cell("" if is_dead else format_duration(now - started_at), "dim"),
        Cell(f"{format_duration(worker.silent_s)} ago", "dim"),
        Cell(queues, "dim"),
    ]


def _format_load(worker: WorkerView) -> str:
    """Returns the busy slots of all slots, such as `8/8 +20` with 20 tasks that wait for a slot.

    `2/8, 1 abandoned` means that one thread continues after its task has ended.
    """
    holds, slots = worker.holds or 0, worker.concurrency or 0
    waiting = f" +{holds - slots}" if holds > slots else ""
    abandoned = f", {worker.abandoned_threads} abandoned" if worker.abandoned_threads else ""
    return f"{min(holds, slots)}/{slots}{waiting}{abandoned}"


def _build_execution_row(summary: ExecutionSummary, now: float) -> list[Cell]:
    style = STATE_STYLES[summary.status]
    took = (summary.finished_at or now) - (summary.started_at or now)
    return [
        Cell(summary.execution_id),
        Cell(summary.workflow, "bold"),
        Cell(f"{style.glyph} {summary.status}", style.style),
        Cell(format_duration(took) if summary.started_at else "", "dim"),
        Cell(" ".join((summary.error or "").split()), "red"),
    ]


def _build_owner_row(name: str) -> list[Cell]:
    pid = parse_engine_pid(name)
    return [Cell(name), Cell("" if pid is None else f"pid {pid}", "dim")]
