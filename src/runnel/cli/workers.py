"""`runnel workers`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import AsJson, Place, ServerUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.cli.tables import Cell
    from runnel.ports.registry import WorkerRecord
    from runnel.settings import Settings

_STYLES = {"alive": "green", "draining": "yellow", "silent": "yellow", "dead": "red"}


def workers(*, as_json: AsJson = False, redis_url: ServerUrl = None) -> int:
    """List the workers of a server: what each one takes, how much it has, how it is.

    [bold]silent[/bold]: no heartbeat for WORKER_HEARTBEAT_TIMEOUT, or 3.5 of its own, rarer ones.

    [bold]dead[/bold]: its tasks were given to others. One that ended in good order is not listed.
    """
    import asyncio

    from runnel.cli.options import configure_server

    settings = configure_server(Place(redis_url=redis_url))
    records, now = asyncio.run(_load(settings))
    if as_json:
        _print_json(records, settings)
    elif not records:
        print("no workers; start one with: runnel worker")
    else:
        _print(records, settings, now)
    return exits.OK


def state_of(record: "WorkerRecord", settings: "Settings") -> str:
    timeout_s = settings.heartbeat_timeout_s
    is_silent = not record.is_dead and record.silent_s > max(timeout_s, record.grace_s(timeout_s))
    return "silent" if is_silent else str(record.state)


async def _load(settings: "Settings") -> "tuple[list[WorkerRecord], float]":
    from runnel.runtime.look import looking_at_tasks

    async with looking_at_tasks(settings) as (tasks, clock):
        found = await tasks.workers(with_dead=True)
        return sorted(found, key=lambda each: (each.is_dead, each.worker)), clock.now()


def _print_json(records: "Sequence[WorkerRecord]", settings: "Settings") -> None:
    from runnel.cli.words import compact
    from runnel.views import moment

    for record in records:
        about = record.about
        document = {
            "worker": record.worker,
            "state": state_of(record, settings),
            "holds": record.holds,
            "silent_s": record.silent_s,
            "host": about.host if about else None,
            "pid": about.pid if about else None,
            "queues": list(about.queues) if about and about.queues is not None else None,
            "handlers": list(about.handlers) if about else [],
            "concurrency": about.concurrency if about else None,
            "beat_s": (about.beat_s or None) if about else None,
            "started_at": moment(about.started_at) if about else None,
            "version": about.version if about else None,
        }
        print(compact(document))


def _print(records: "Sequence[WorkerRecord]", settings: "Settings", now: float) -> None:
    from runnel.cli.tables import print_table

    heads = ["WORKER", "STATE", "BUSY", "UP FOR", "LAST SIGN", "QUEUES"]
    print_table(heads, [row_of(record, settings, now) for record in records])


def row_of(record: "WorkerRecord", settings: "Settings", now: float) -> "list[Cell]":
    from runnel.cli.tables import Cell
    from runnel.cli.words import duration

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


def queue_name(key: str) -> str:
    """As people name it, in workflows and with --queues."""
    return key.removeprefix("tasks:")
