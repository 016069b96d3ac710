"""`runnel resume [ID]`"""

import sys
from typing import Annotated

import typer

from runnel.app.stores import has_data
from runnel.app.wiring import build_engine
from runnel.cli.errors import OK
from runnel.cli.options import AsJson, Concurrency, DirectLocation, configure
from runnel.cli.render.progress_view import open_progress_view
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.run_locally import LocalSession, make_stop_message
from runnel.cli.session.takeover import Takeover, plan_takeover
from runnel.cli.streams import reserve_stdout
from runnel.errors import InputError


async def resume(
    execution_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="An execution: its id, the first characters of the id, or @last. Without an id, "
            "all unfinished executions are resumed.",
        ),
    ] = None,
    *,
    concurrency: Concurrency = None,
    as_json: AsJson = False,
    location: DirectLocation,
) -> int:
    """Resume interrupted executions.

    Completed nodes do not run again. This command can't resume an execution that ran inside your
    own program.
    """
    settings = configure(location, concurrency=concurrency)
    if settings.is_remote:
        raise InputError(
            "'runnel resume' is only for a data directory: orchestrators continue executions on a "
            "server; 'runnel watch ID' follows an execution"
        )
    if execution_id is None and not has_data(settings):
        print(f"nothing to resume: there is no data in '{settings.data_dir}'", file=sys.stderr)
        return OK
    hints = CommandHints(location)
    with reserve_stdout() as out:
        plan = await plan_takeover(settings, execution_id, hints)
        if plan.refusal is not None:
            sentence, code = plan.refusal
            print(sentence, file=sys.stderr)
            return code
        make_importable(plan.folders)
        engine = await build_engine(settings)
        try:
            view = open_progress_view(engine.clock, hints)
            session = LocalSession(engine, view, stop_message=make_stop_message(settings))
            takeover = Takeover(engine, session, plan)
            await session.run(adopts=plan.adopts, on_recovered=takeover.follow)
            takeover.print_rest()
            return await session.report(hints, out=out, as_json=as_json)
        finally:
            await engine.backend.close()
