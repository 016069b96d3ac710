"""`runnel run FILE|NAME`"""

import asyncio
from collections.abc import Mapping
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
    Priority,
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
    print_warnings,
    read_input,
)
from runnel.cli.session.run_locally import StartedExecution, run_locally
from runnel.cli.streams import reserve_stdout
from runnel.client.protocol import Client
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.settings.model import Settings

WorkflowFileOrName = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME",
        help="A workflow file: YAML, JSON, or a Python file with a @workflow (flow.py, "
        "flow.py:name); or the name of a stored workflow.",
        autocompletion=complete_workflow,
    ),
]


def run(
    text: WorkflowFileOrName,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    priority: Priority = None,
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
    its newest. A text that begins with a dot or a slash is always a file.

    With a Redis or a Runnel server, workers run the workflow and this command shows its progress.

    The output of the workflow goes to stdout; progress and errors go to stderr.

    Exit code: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted.

    [bold]runnel resume[/bold] continues a run that was interrupted or killed.
    """
    settings = configure(location, concurrency=concurrency)
    check_concurrency(settings, concurrency)
    hints = CommandHints(location, settings.is_remote)
    graph = _load_graph(text, settings)
    workflow, file = graph.workflow, Path(text)
    folder = get_import_folder(file)
    own_labels = _build_labels(labels, folder, settings)
    value = read_input(input_file, assignments or [], workflow.input)
    has_input = bool(assignments) or input_file is not None
    if is_held:
        held_input = value if has_input else None
        return _print_held(workflow, held_input, settings, labels=own_labels, priority=priority)
    if not settings.is_remote:  # fails before functions are imported and files are created
        check_input(workflow, value)
        value = CheckedInput(value)

    async def submit(client: Client) -> StartedExecution:
        execution_id = await client.submit(graph, value, labels=own_labels, priority=priority)
        return StartedExecution(execution_id, workflow)

    if settings.is_remote:
        from runnel.cli.session.follow import submit_and_follow  # not for a local run

        with reserve_stdout() as out:
            return asyncio.run(submit_and_follow(submit, settings, hints, out=out, as_json=as_json))
    make_importable([folder])
    with reserve_stdout() as out:
        check_functions(workflow, file, settings)
        print_warnings([workflow], settings)
        return asyncio.run(run_locally(submit, settings, hints, out=out, as_json=as_json))


def _build_labels(labels: Labels, folder: Path, settings: Settings) -> dict[str, str]:
    """Returns the labels of the options, and for a local run the folder of its functions."""
    source = {} if settings.is_remote else {SOURCE_LABEL: str(folder)}
    return read_labels(labels or []) | source


def _load_graph(text: str, settings: Settings) -> Graph:
    """Loads a workflow file, or the stored workflow of a name that is not a file.

    The name of a stored workflow may contain a slash, and a folder may have the same name.
    """
    file = Path(text)
    if is_workflow_file(text) or text.startswith((".", "/")) or file.is_file():
        return load_graph(file, settings)
    from runnel.cli.session.open_client import load_stored_graph  # not for a file

    return asyncio.run(load_stored_graph(text, settings))


def _print_held(
    workflow: Workflow,
    input_: Json,
    settings: Settings,
    *,
    labels: Mapping[str, str],
    priority: int | None,
) -> int:
    """Stores a held execution and prints its id; `runnel trigger` may give another input."""
    from runnel.cli.session.open_client import open_client  # only for a held execution

    if input_ is not None:
        check_input(workflow, input_)

    async def hold() -> ExecutionId:
        async with open_client(settings, creates_data_dir=True) as session:
            return await session.client.hold(workflow, input_, labels=labels, priority=priority)

    print(asyncio.run(hold()))
    return OK
