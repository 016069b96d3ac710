"""`runnel queues`"""

from typing import TYPE_CHECKING

from runnel.cli import errors as exits
from runnel.cli.options import AsJson, DefaultedRedisUrl, Server, StoreLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.ports.workers import WorkerRecord
    from runnel.settings.model import Settings
    from runnel.views.operations import QueueView


def queues(
    *, as_json: AsJson = False, redis_url: DefaultedRedisUrl = None, server: Server = None
) -> int:
    """List the queues of a server: how many tasks wait, since when, and who takes them.

    Marked: a queue whose tasks no worker takes, or whose oldest one waits too long.
    """
    import asyncio

    import msgspec

    from runnel.cli.options import configure_server

    settings = configure_server(StoreLocation(redis_url=redis_url, server=server))
    lines = asyncio.run(_load_queues(settings))
    if as_json:
        from runnel.cli.render.text import to_compact_json

        for line in lines:
            print(to_compact_json(msgspec.to_builtins(line)))
    elif not lines:
        print("no queues: nothing has been handed to workers lately")
    else:
        _print_queues(lines)
    return exits.OK


async def _load_queues(settings: "Settings") -> "list[QueueView]":
    from runnel.cli.session.open_client import open_task_queue
    from runnel.client.operations import build_queue_views

    async with open_task_queue(settings) as (tasks, _):
        return build_queue_views(await tasks.queues(), await tasks.workers(), settings)


def _print_queues(lines: "Sequence[QueueView]") -> None:
    from runnel.cli.render.overview import QUEUE_HEADERS, build_queue_row
    from runnel.cli.render.text import print_table

    print_table(QUEUE_HEADERS, [build_queue_row(line) for line in lines])


# `runnel workers`


def workers(
    *, as_json: AsJson = False, redis_url: DefaultedRedisUrl = None, server: Server = None
) -> int:
    """List the workers of a server: what each one takes, how much it has, how it is.

    [bold]silent[/bold]: no heartbeat for WORKER_HEARTBEAT_TIMEOUT, or 3.5 of its own, rarer ones.

    [bold]dead[/bold]: its tasks were given to others. One that ended in good order is not listed.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.render.text import to_compact_json
    from runnel.client.operations import build_worker_document

    settings = configure_server(StoreLocation(redis_url=redis_url, server=server))
    records, now = asyncio.run(_load_workers(settings))
    if as_json:
        for record in records:
            print(to_compact_json(build_worker_document(record, settings)))
    elif not records:
        print("no workers; start one with: runnel worker")
    else:
        _print_workers(records, settings, now)
    return exits.OK


async def _load_workers(settings: "Settings") -> "tuple[list[WorkerRecord], float]":
    from runnel.cli.session.open_client import open_task_queue
    from runnel.client.operations import list_workers

    async with open_task_queue(settings) as (tasks, clock):
        return await list_workers(tasks), clock.now()


def _print_workers(records: "Sequence[WorkerRecord]", settings: "Settings", now: float) -> None:
    from runnel.cli.render.overview import WORKER_HEADERS, build_worker_row
    from runnel.cli.render.text import print_table

    print_table(WORKER_HEADERS, [build_worker_row(record, settings, now) for record in records])
