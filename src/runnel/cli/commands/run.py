"""`runnel run FILE|NAME`"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.authoring.input_schema import CheckedInput, check_input
from runnel.cli.errors import OK
from runnel.cli.options import (
    AsJsonResult,
    Assignments,
    Concurrency,
    InputFile,
    Labels,
    StoreLocation,
    check_concurrency,
    complete_workflow,
    configure,
    read_labels,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import (
    check_functions,
    get_import_folder,
    is_workflow_file,
    load_graph,
    make_importable,
    read_input,
    warn_of_missing_secrets,
)
from runnel.cli.session.run_locally import StartedExecution, run_locally
from runnel.cli.streams import reserve_stdout
from runnel.client.protocol import Client
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.settings.model import Settings

WorkflowFileOrName = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|NAME",
        help="A workflow file: YAML, JSON, or a Python file with a @workflow (flow.py, "
        "flow.py:name); or the name of a stored workflow.",
        readable=False,
        autocompletion=complete_workflow,
    ),
]


def run(
    file: WorkflowFileOrName,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    concurrency: Concurrency = None,
    is_held: Annotated[
        bool,
        typer.Option(
            "--hold", help="Store an execution that waits for 'runnel trigger', and print its id."
        ),
    ] = False,
    as_json: AsJsonResult = False,
    location: StoreLocation,
) -> int:
    """Run a workflow and show its progress.

    A name without a file ending runs the stored workflow of that name: its active version, or else
    its newest.

    With a Redis or a Runnel server, workers run the workflow and this command shows its progress.

    The output of the workflow goes to stdout; progress and errors go to stderr.

    Exit code: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted.

    [bold]runnel resume[/bold] continues a run that was interrupted or killed.
    """
    settings = configure(location, concurrency=concurrency)
    check_concurrency(settings, concurrency)
    hints = CommandHints(location, settings.is_remote)
    graph = _load_graph(file, settings)
    workflow = graph.workflow
    if is_held:
        if assignments or input_file is not None or labels:
            raise InputError("--hold: give the input to 'runnel trigger', and no labels")
        print(asyncio.run(_hold(workflow, settings)))
        return OK
    value = read_input(input_file, assignments or [], workflow.input)
    if not settings.is_remote:  # fails before functions are imported and files are created
        check_input(workflow, value)
        value = CheckedInput(value)
    own_labels = read_labels(labels or [])

    async def submit(client: Client) -> StartedExecution:
        return StartedExecution(await client.submit(graph, value, labels=own_labels), workflow)

    if settings.is_remote:
        from runnel.cli.session.follow import submit_and_follow  # not for a local run

        with reserve_stdout() as out:
            return asyncio.run(submit_and_follow(submit, settings, hints, out=out, as_json=as_json))
    folder = get_import_folder(file)
    own_labels[SOURCE_LABEL] = str(folder)
    make_importable([folder])
    with reserve_stdout() as out:
        check_functions(workflow, file, settings)
        warn_of_missing_secrets([workflow], settings)
        return asyncio.run(run_locally(submit, settings, hints, out=out, as_json=as_json))


def _load_graph(file: Path, settings: Settings) -> Graph:
    """Loads a workflow file, or the stored workflow of a name that is not a file."""
    if is_workflow_file(str(file)) or file.exists():
        return load_graph(file, settings)
    from runnel.cli.session.open_client import load_stored_graph  # not for a file

    return asyncio.run(load_stored_graph(str(file), settings))


async def _hold(workflow: Workflow, settings: Settings) -> ExecutionId:
    from runnel.cli.session.open_client import open_client  # only for a held execution

    async with open_client(settings, creates_data_dir=True) as session:
        return await session.client.hold(workflow)
