"""`runnel show ID`"""

from typing import TYPE_CHECKING

from runnel.cli import exits
from runnel.cli.options import AsJson, DataDir, Id, Place, RedisUrl

if TYPE_CHECKING:
    from runnel.views import ExecutionView


def show(
    execution_id: Id,
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """Show one execution: its nodes, input, output and error."""
    import asyncio

    view, now = asyncio.run(_load(execution_id, Place(data_dir, redis_url)))
    if as_json:
        from runnel.cli.words import compact
        from runnel.views import document_of

        print(compact(document_of(view)))
    else:
        from runnel.cli.portrait import print_execution

        print_execution(view, now)
    return exits.OK


async def _load(text: str, place: Place) -> "tuple[ExecutionView, float]":
    from runnel.cli.finding import find
    from runnel.cli.options import configure
    from runnel.runtime.look import looking

    async with looking(configure(place)) as look:
        return await look.client.get(await find(look, text)), look.clock.now()
