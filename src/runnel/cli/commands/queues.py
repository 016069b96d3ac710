"""`runnel queues`"""

from typing import TYPE_CHECKING

from runnel.cli import errors as exits
from runnel.cli.options import AsJson, DefaultedRedisUrl, Server, StoreLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.settings.model import Settings
    from runnel.views.operations import QueueView, WorkerView


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
    from runnel.cli.session.open_client import open_operations

    async with open_operations(settings) as (operations, _clock):
        return await operations.queues()


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
    from runnel.views import build_document

    settings = configure_server(StoreLocation(redis_url=redis_url, server=server))
    views, now = asyncio.run(_load_workers(settings))
    if as_json:
        for view in views:
            print(to_compact_json(build_document(view)))
    elif not views:
        print("no workers; start one with: runnel worker")
    else:
        _print_workers(views, now)
    return exits.OK


async def _load_workers(settings: "Settings") -> "tuple[list[WorkerView], float]":
    from runnel.cli.session.open_client import open_operations

    async with open_operations(settings) as (operations, clock):
        return await operations.workers(), clock.now()


def _print_workers(views: "Sequence[WorkerView]", now: float) -> None:
    from runnel.cli.render.overview import WORKER_HEADERS, build_worker_row
    from runnel.cli.render.text import print_table

    print_table(WORKER_HEADERS, [build_worker_row(view, now) for view in views])
