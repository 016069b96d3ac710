"""`runnel queues`"""

from typing import TYPE_CHECKING, NamedTuple

from runnel.cli import exits
from runnel.cli.options import AsJson, Place, ServerUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.ports.registry import QueueRecord, WorkerRecord
    from runnel.settings import Settings


class Line(NamedTuple):
    """`problem` is what a person should look at; empty when there is nothing."""

    queue: str
    waiting: int
    oldest_s: float
    workers: int
    problem: str


def queues(*, as_json: AsJson = False, redis_url: ServerUrl = None) -> int:
    """List the queues of a server: how many tasks wait, since when, and who takes them.

    Marked: a queue whose tasks no worker takes, or whose oldest one waits too long.
    """
    import asyncio

    from runnel.cli.options import configure_server

    settings = configure_server(Place(redis_url=redis_url))
    lines = asyncio.run(_load(settings))
    if as_json:
        from runnel.cli.words import compact

        for line in lines:
            print(compact(line._asdict()))
    elif not lines:
        print("no queues: nothing has been handed to workers lately")
    else:
        _print(lines)
    return exits.OK


async def _load(settings: "Settings") -> "list[Line]":
    from runnel.runtime.look import looking_at_tasks

    async with looking_at_tasks(settings) as (tasks, _):
        return lines_of(await tasks.queues(), await tasks.workers(), settings)


def lines_of(
    records: "Sequence[QueueRecord]", workers: "Sequence[WorkerRecord]", settings: "Settings"
) -> list[Line]:
    from runnel.cli.workers import queue_name, state_of

    alive = [each.about for each in workers if state_of(each, settings) == "alive" and each.about]
    lines = []
    for record in records:
        name = queue_name(record.queue)
        serving = sum(about.serves(record.queue) for about in alive)
        problem = _problem(record, name, settings, serving=serving, alive=len(alive))
        lines.append(Line(name, record.depth, record.waits_s, serving, problem))
    return lines


def _problem(
    record: "QueueRecord", name: str, settings: "Settings", *, serving: int, alive: int
) -> str:
    if record.depth and not alive:
        return "they wait until a worker is there"
    if record.depth and not serving:
        return f"no worker takes them: they fail after {settings.unserved_s:g} s"
    stale_s = settings.stale_s.get(name)
    if record.depth and stale_s is not None and record.waits_s > stale_s:
        return f"the oldest waits for more than {stale_s:g} s: more workers, or a larger timeout"
    return ""


def _print(lines: "Sequence[Line]") -> None:
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import duration

    rows = [
        [
            Cell(line.queue),
            Cell(f"{line.waiting:,}", "bold" if line.waiting else "dim"),
            Cell(duration(line.oldest_s) if line.waiting else "", "dim"),
            Cell(str(line.workers), "" if line.workers else "yellow"),
            Cell(line.problem, "red"),
        ]
        for line in lines
    ]
    print_table(["QUEUE", "WAITING", "OLDEST", "WORKERS", ""], rows)
