"""`runnel workers`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import AsJson, Place, Server, ServerUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.cli.tables import Cell
    from runnel.ports.registry import WorkerRecord
    from runnel.settings import Settings

_STYLES = {"alive": "green", "draining": "yellow", "silent": "yellow", "dead": "red"}


def workers(*, as_json: AsJson = False, redis_url: ServerUrl = None, server: Server = None) -> int:
    """List the workers of a server: what each one takes, how much it has, how it is.

    [bold]silent[/bold]: no heartbeat for WORKER_HEARTBEAT_TIMEOUT, or 3.5 of its own, rarer ones.

    [bold]dead[/bold]: its tasks were given to others. One that ended in good order is not listed.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.words import compact
    from runnel.operations.workers import worker_document

    settings = configure_server(Place(redis_url=redis_url, server=server))
    records, now = asyncio.run(_load(settings))
    if as_json:
        for record in records:
            print(compact(worker_document(record, settings)))
    elif not records:
        print("no workers; start one with: runnel worker")
    else:
        _print(records, settings, now)
    return exits.OK


async def _load(settings: "Settings") -> "tuple[list[WorkerRecord], float]":
    from runnel.cli.opening import looking_at_tasks
    from runnel.operations.workers import list_workers

    async with looking_at_tasks(settings) as (tasks, clock):
        return await list_workers(tasks), clock.now()


def _print(records: "Sequence[WorkerRecord]", settings: "Settings", now: float) -> None:
    from runnel.cli.tables import print_table

    heads = ["WORKER", "STATE", "BUSY", "UP FOR", "LAST SIGN", "QUEUES"]
    print_table(heads, [row_of(record, settings, now) for record in records])


def row_of(record: "WorkerRecord", settings: "Settings", now: float) -> "list[Cell]":
    from runnel.cli.tables import Cell
    from runnel.cli.words import duration
    from runnel.operations.queues import queue_name
    from runnel.operations.workers import state_of

    about, state = record.about, state_of(record, settings)
    if about is None:
        return [Cell(record.worker), Cell(state, _STYLES[state]), *[Cell("")] * 4]
    queues = "all" if about.queues is None else ", ".join(map(queue_name, about.queues))
    return [
        Cell(record.worker),
        Cell(state, _STYLES[state]),
        Cell("" if record.is_dead else f"{record.holds}/{about.concurrency}"),
        Cell("" if record.is_dead else duration(now - about.started_at), "dim"),
        Cell(f"{duration(record.silent_s)} ago", "dim"),
        Cell(queues, "dim"),
    ]
