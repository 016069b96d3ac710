"""`runnel queues`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import AsJson, Place, Server, ServerUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.operations.queues import QueueLine
    from runnel.settings import Settings


def queues(*, as_json: AsJson = False, redis_url: ServerUrl = None, server: Server = None) -> int:
    """List the queues of a server: how many tasks wait, since when, and who takes them.

    Marked: a queue whose tasks no worker takes, or whose oldest one waits too long.
    """
    import asyncio

    import msgspec

    from runnel.cli.options import configure_server

    settings = configure_server(Place(redis_url=redis_url, server=server))
    lines = asyncio.run(_load(settings))
    if as_json:
        from runnel.cli.words import compact

        for line in lines:
            print(compact(msgspec.to_builtins(line)))
    elif not lines:
        print("no queues: nothing has been handed to workers lately")
    else:
        _print(lines)
    return exits.OK


async def _load(settings: "Settings") -> "list[QueueLine]":
    from runnel.cli.opening import looking_at_tasks
    from runnel.operations.queues import lines_of

    async with looking_at_tasks(settings) as (tasks, _):
        return lines_of(await tasks.queues(), await tasks.workers(), settings)


def _print(lines: "Sequence[QueueLine]") -> None:
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
