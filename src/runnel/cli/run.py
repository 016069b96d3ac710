"""`runnel run FILE`"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from runnel.cli.options import DataDir, File, Place, RedisUrl

if TYPE_CHECKING:
    from typing import TextIO

    from runnel.cli.hints import Hints
    from runnel.core.json_types import Json
    from runnel.core.workflow import Workflow
    from runnel.settings import Settings

Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="How many nodes may run at a time. [dim]\\[default: $WORKER_CONCURRENCY or 4][/dim]",
        show_default=False,
    ),
]
AsJsonResult = Annotated[
    bool, typer.Option("--json", help="Print the whole execution as one JSON object at the end.")
]


Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="KEY=VALUE",
        help="A value of the input (repeated): year=2026, user.name=Ada, tags:='[1, 2]'.",
        show_default=False,
    ),
]
InputFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="The input as JSON or YAML; - reads stdin.", show_default=False
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="KEY=VALUE",
        help="A label to know the execution by (repeated).",
        show_default=False,
    ),
]


def run(
    file: File,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """Run a workflow, and show how it goes.

    With a Redis server it is run by the workers there, and this command watches.

    The result goes to stdout, everything else to stderr.

    Exit code: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted.

    What was interrupted or killed goes on with [bold]runnel resume[/bold].
    """
    import asyncio

    from runnel.authoring.inputs import check_input
    from runnel.cli.documents import SOURCE_LABEL, check_functions, load_graph, make_importable
    from runnel.cli.hints import Hints
    from runnel.cli.inputs import read_input, read_labels
    from runnel.cli.options import configure
    from runnel.cli.streams import results
    from runnel.errors import InputError

    place = Place(data_dir, redis_url)
    settings = configure(place, concurrency=concurrency)
    hints = Hints(place, settings.has_redis)
    if settings.has_redis and concurrency is not None:
        raise InputError(
            "--concurrency: on a server it is that of each worker; give it to 'runnel worker'"
        )
    workflow = load_graph(file, settings).workflow
    value = read_input(input_file, assignments or [])
    check_input(workflow, value)
    own_labels = read_labels(labels or [])
    if settings.has_redis:
        wanted = Submission(workflow, value, own_labels)
        with results() as out:
            return asyncio.run(_hand_over(wanted, settings, hints, out=out, as_json=as_json))
    folder = file.parent.resolve()
    own_labels[SOURCE_LABEL] = str(folder)
    make_importable([folder])
    with results() as out:
        check_functions(workflow, file)
        wanted = Submission(workflow, value, own_labels)
        return asyncio.run(_run(wanted, settings, hints, out=out, as_json=as_json))


class Submission(NamedTuple):
    workflow: "Workflow"
    input: "Json"
    labels: dict[str, str]


async def _run(
    wanted: Submission, settings: "Settings", hints: "Hints", *, out: "TextIO", as_json: bool
) -> int:
    """Submits before the engine runs: so its id is known before anything can happen to it."""
    from runnel.cli.attending import Attendance, farewell
    from runnel.cli.progress import Progress
    from runnel.cli.reporting import report
    from runnel.cli.watching import open_view
    from runnel.runtime.build import build_engine

    engine = await build_engine(settings)
    try:
        await engine.backend.claim_home(engine.name)
        execution_id = await engine.client.submit(
            wanted.workflow, wanted.input, labels=wanted.labels
        )
        view = open_view(engine.clock, hints)
        attendance = Attendance(engine, view, farewell=farewell(settings))
        attendance.follow(Progress(execution_id, wanted.workflow))
        await attendance.run()
        return await report(engine, attendance, hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()


async def _hand_over(
    wanted: Submission, settings: "Settings", hints: "Hints", *, out: "TextIO", as_json: bool
) -> int:
    """To the workers of a server."""
    from runnel.cli.onlooking import onlook
    from runnel.runtime.addresses import redis_shown
    from runnel.runtime.look import looking

    async with looking(settings) as look:
        execution_id = await look.client.submit(wanted.workflow, wanted.input, labels=wanted.labels)
        lead = f"submitted to {redis_shown(settings)}: workers run it, this command only watches"
        return await onlook(
            look, execution_id, settings, hints, lead=lead, out=out, as_json=as_json
        )
