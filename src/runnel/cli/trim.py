"""`runnel trim`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import Place, ServerUrl

if TYPE_CHECKING:
    from runnel.settings import Settings


def trim(*, redis_url: ServerUrl = None) -> int:
    """Remove from a server what nobody needs any more: the names of empty queues.

    Tasks are never removed. Orchestrators do this by themselves, ten minutes later.
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
