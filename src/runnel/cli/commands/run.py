"""`runnel run FILE`"""

import asyncio

from runnel.authoring.functions import SOURCE_LABEL
from runnel.authoring.input_schema import CheckedInput, check_input
from runnel.cli.options import (
    AsJsonResult,
    Assignments,
    Concurrency,
    InputFile,
    Labels,
    StoreLocation,
    WorkflowFile,
    check_concurrency,
    configure,
    read_labels,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import (
    check_functions,
    get_import_folder,
    load_graph,
    make_importable,
    read_input,
)
from runnel.cli.session.run_locally import StartedExecution, run_locally
from runnel.cli.streams import reserve_stdout
from runnel.client.protocol import Client


def run(
    file: WorkflowFile,
    *,
    assignments: Assignments = None,
    input_file: InputFile = None,
    labels: Labels = None,
    concurrency: Concurrency = None,
    as_json: AsJsonResult = False,
    location: StoreLocation,
) -> int:
    """Run a workflow and show its progress.

    With a Redis or a Runnel server, workers run the workflow and this command shows its progress.

    The output of the workflow goes to stdout; progress and errors go to stderr.

    Exit code: 0 completed, 1 failed or cancelled, 2 bad input, 130 interrupted.

    [bold]runnel resume[/bold] continues a run that was interrupted or killed.
    """
    settings = configure(location, concurrency=concurrency)
    check_concurrency(settings, concurrency)
    hints = CommandHints(location, settings.is_remote)
    graph = load_graph(file, settings)
    workflow = graph.workflow
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
        return asyncio.run(run_locally(submit, settings, hints, out=out, as_json=as_json))
