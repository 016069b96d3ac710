"""`runnel watch ID`"""

from typing import TYPE_CHECKING

from runnel.cli.options import DataDir, Id, Place, RedisUrl, Server
from runnel.cli.run import AsJsonResult

if TYPE_CHECKING:
    from typing import TextIO


def watch(
    execution_id: Id,
    *,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Follow an execution that another process runs, until it is final.

    Exit code as that of [bold]run[/bold]; interrupting it leaves the execution alone.
    """
    import asyncio

    from runnel.cli.streams import results

    with results() as out:
        return asyncio.run(
            _watch(execution_id, Place(data_dir, redis_url, server), out=out, as_json=as_json)
        )


async def _watch(text: str, place: Place, *, out: "TextIO", as_json: bool) -> int:
    from runnel.cli.finding import find
    from runnel.cli.hints import Hints
    from runnel.cli.onlooking import onlook
    from runnel.cli.opening import looking
    from runnel.cli.options import configure
    from runnel.cli.unfinished import OF_PROGRAM, is_of_program
    from runnel.core.states import EXECUTION_FINAL

    settings = configure(place)
    hints = Hints(place, settings.is_remote)
    async with looking(settings) as look:
        execution_id = await find(look, text)
        execution = await look.client.load(execution_id)
        is_owned = await look.owner_of(execution_id) is not None
        lead = ""
        if not is_owned and execution.state not in EXECUTION_FINAL:
            lead = f"no process runs it now; go on with: {hints.revive(execution_id)}"
            if is_of_program(execution.graph.workflow):
                lead = (
                    f"no process runs it now; {OF_PROGRAM}; end it with: {hints.end(execution_id)}"
                )
        return await onlook(
            look, execution_id, settings, hints, lead=lead, out=out, as_json=as_json
        )
