"""`runnel resume [ID]`"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.commands.run import Concurrency
from runnel.cli.options import AsJson, DataDir, RedisUrl, StoreLocation

if TYPE_CHECKING:
    from typing import TextIO

    from runnel.cli.session.hints import CommandHints
    from runnel.settings.model import Settings


def resume(
    execution_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="One execution: its id, the first characters of it, or @last. Without it: all.",
            show_default=False,
        ),
    ] = None,
    *,
    concurrency: Concurrency = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """Go on with what was interrupted or killed: one execution, or all unfinished ones.

    Nodes that are done are not run again. What ran inside a program of yours is left to it.
    """
    import asyncio

    from runnel.app.stores import has_data
    from runnel.cli.options import configure
    from runnel.cli.session.hints import CommandHints
    from runnel.cli.streams import reserve_stdout
    from runnel.errors import InputError

    place = StoreLocation(data_dir, redis_url)
    settings = configure(place, concurrency=concurrency)
    if settings.is_remote:
        raise InputError(
            "nothing has to be resumed on servers: orchestrators take up what is unfinished by "
            "themselves; 'runnel watch ID' follows an execution"
        )
    if execution_id is None and not has_data(settings):
        print(f"nothing to resume: there is no data in '{settings.data_dir}'", file=sys.stderr)
        return exits.OK
    with reserve_stdout() as out:
        return asyncio.run(
            _resume(execution_id, settings, CommandHints(place), out=out, as_json=as_json)
        )


async def _resume(
    text: str | None, settings: "Settings", hints: "CommandHints", *, out: "TextIO", as_json: bool
) -> int:
    from runnel.app.wiring import build_engine
    from runnel.cli.render.progress_view import open_progress_view
    from runnel.cli.session.follow import FollowSession, make_stop_message
    from runnel.cli.session.inputs import make_importable
    from runnel.cli.session.takeover import Takeover, plan_takeover

    found = await plan_takeover(settings, text, hints)
    if found.refusal is not None:
        sentence, code = found.refusal
        print(sentence, file=sys.stderr)
        return code
    make_importable(found.folders)
    engine = await build_engine(settings)
    try:
        attendance = FollowSession(
            engine,
            open_progress_view(engine.clock, hints),
            stop_message=make_stop_message(settings),
        )
        takeover = Takeover(engine, attendance, found)
        await attendance.run(adopts=found.adopts, on_recovered=takeover.follow)
        takeover.print_rest()
        return await attendance.report(hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()
