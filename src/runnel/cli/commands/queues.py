"""`runnel queues` and `runnel workers`"""

import msgspec

from runnel.cli.options import AsJson, ServerLocation, configure_server
from runnel.cli.render.overview import (
    QUEUE_HEADERS,
    WORKER_HEADERS,
    build_queue_row,
    build_worker_row,
)
from runnel.cli.render.printer import print_list
from runnel.cli.session.open_client import open_operations


async def queues(*, as_json: AsJson = False, location: ServerLocation) -> None:
    """List queues with their waiting tasks and workers.

    A queue is marked if no worker takes its tasks, or if its oldest task waits too long.
    """
    async with open_operations(configure_server(location)) as (operations, _clock):
        views = await operations.queues()
    print_list(
        views,
        QUEUE_HEADERS,
        build_queue_row,
        as_json=as_json,
        empty="no queues: no task was queued recently",
        to_json=msgspec.to_builtins,
    )


async def workers(*, as_json: AsJson = False, location: ServerLocation) -> None:
    """List workers with their state, load and queues.

    A [bold]silent[/bold] worker has sent no heartbeat for WORKER_HEARTBEAT_TIMEOUT, or for 3 of
    its own heartbeat intervals if that is longer.

    The tasks of a [bold]dead[/bold] worker went to other workers. A worker that shut down cleanly
    is not listed.
    """
    async with open_operations(configure_server(location)) as (operations, clock):
        views, now = await operations.workers(), clock.now()
    print_list(
        views,
        WORKER_HEADERS,
        lambda view: build_worker_row(view, now),
        as_json=as_json,
        empty="no workers; start one with: runnel worker",
    )
