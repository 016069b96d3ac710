"""`runnel trim`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import Place, RedisUrl

if TYPE_CHECKING:
    from runnel.settings import Settings


def trim(*, redis_url: RedisUrl = None) -> int:
    """Remove from a server what nobody needs any more: the names of empty queues.

    Nothing has to be trimmed regularly: tasks leave their queue when a worker claims them, and
    orchestrators forget what has been empty for ten minutes. Tasks are never removed.
    """
    import asyncio

    from runnel.cli.options import configure_server
    from runnel.cli.words import count

    forgotten = asyncio.run(_trim(configure_server(Place(redis_url=redis_url))))
    print(f"{count(forgotten, 'empty queue')} forgotten")
    return exits.OK


async def _trim(settings: "Settings") -> int:
    """A queue that gets a task meanwhile stays."""
    from runnel.runtime.look import looking

    async with looking(settings) as look:
        store, tasks = look.backend.store, look.backend.tasks
        empty = [record for record in await tasks.queues() if not record.depth]
        return sum([await store.forget_queue(record) for record in empty])
