"""`runnel run FILE`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.options import DataDir, RedisUrl, Server, StoreLocation, WorkflowFile

if TYPE_CHECKING:
    from runnel.client.protocol import Client


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
    file: WorkflowFile,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Run a workflow, and show how it goes.

    With a Redis server it is run by the workers there, and this command watches.

    The result goes to stdout, everything else to stderr.

    Exit code: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted.

    What was interrupted or killed goes on with [bold]runnel resume[/bold].
    """
    import asyncio

    from runnel.authoring.functions import SOURCE_LABEL
    from runnel.authoring.input_schema import check_input
    from runnel.cli.options import configure, read_labels
    from runnel.cli.session.follow import StartedExecution, run_locally
    from runnel.cli.session.hints import CommandHints
    from runnel.cli.session.inputs import (
        check_functions,
        get_import_folder,
        load_graph,
        make_importable,
        read_input,
    )
    from runnel.cli.streams import reserve_stdout
    from runnel.errors import InputError

    place = StoreLocation(data_dir, redis_url, server)
    settings = configure(place, concurrency=concurrency)
    hints = CommandHints(place, settings.is_remote)
    if settings.is_remote and concurrency is not None:
        raise InputError(
            "--concurrency: on a server it is that of each worker; give it to 'runnel worker'"
        )
    workflow = load_graph(file, settings).workflow
    value = read_input(input_file, assignments or [], workflow.input)
    check_input(workflow, value)
    own_labels = read_labels(labels or [])

    async def submit(client: "Client") -> StartedExecution:
        return StartedExecution(await client.submit(workflow, value, labels=own_labels), workflow)

    if settings.is_remote:
        from runnel.cli.session.watch import submit_and_follow

        with reserve_stdout() as out:
            return asyncio.run(submit_and_follow(submit, settings, hints, out=out, as_json=as_json))
    folder = get_import_folder(file)
    own_labels[SOURCE_LABEL] = str(folder)
    make_importable([folder])
    with reserve_stdout() as out:
        check_functions(workflow, file, settings)
        return asyncio.run(run_locally(submit, settings, hints, out=out, as_json=as_json))
