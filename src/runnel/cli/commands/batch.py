"""`runnel batch FILE --inputs documents.jsonl`"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from runnel.authoring.functions import SOURCE_LABEL
from runnel.authoring.payloads import check_text
from runnel.cli.options import (
    Concurrency,
    Labels,
    Priority,
    StoreLocation,
    WorkflowFile,
    check_concurrency,
    configure,
    read_labels,
)
from runnel.cli.render.text import join_names
from runnel.cli.session.batch_documents import FILE_NAMES, read_documents
from runnel.cli.session.batch_output import check_output
from runnel.cli.session.batch_run import ReportOptions, run_batch_locally, run_batch_on_server
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import (
    STDIN,
    check_functions,
    get_import_folder,
    load_graph,
    make_importable,
    print_warnings,
)
from runnel.cli.streams import print_to_stderr, reserve_stdout
from runnel.client.batch import IN_FLIGHT_MAX, IN_FLIGHT_PER_SLOT, NAME_CHARS_MAX, Batch
from runnel.core.run_when import CLEAN_UP_RULES
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.settings.model import Settings

Inputs = Annotated[
    str,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="The file of input documents: one JSON value per line, or a .csv file; - reads stdin.",
    ),
]
IdField = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The field that identifies a document, such as id or meta.number. "
        "[dim]\\[default: a hash of its content][/dim]",
    ),
]
BatchName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The name that identifies the batch. "
        "[dim]\\[default: the name of the inputs file][/dim]",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The file to write the result of each document to, as JSON lines."
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Run the failed nodes of failed documents again.")
]
InFlightMax = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="The number of executions that may be unfinished at once. "
        "[dim]\\[default: 100 with a server, else twice --concurrency][/dim]",
    ),
]
AsJsonSummary = Annotated[
    bool,
    typer.Option("--json", help="Print the summary of the batch as one JSON object at the end."),
]


def batch(
    file: WorkflowFile,
    *,
    inputs: Inputs,
    id_field: IdField = None,
    name: BatchName = None,
    output: Output = None,
    is_retried: RetryFailed = False,
    in_flight: InFlightMax = None,
    labels: Labels = None,
    priority: Priority = None,
    concurrency: Concurrency = None,
    as_json: AsJsonSummary = False,
    location: StoreLocation,
) -> int:
    """Run a workflow once for each document of a file.

    After an interruption, the same command continues the batch: finished documents do not run
    again.

    Exit code: 0 all completed, 1 some failed or were cancelled, 2 bad input, 130 interrupted.
    """
    settings = configure(location, concurrency=concurrency)
    check_concurrency(settings, concurrency)
    check_output(output, [Path(inputs), file])
    graph = load_graph(file, settings)
    workflow = graph.workflow
    own_labels = read_labels(labels or [])
    folder = get_import_folder(file)
    if not settings.is_remote:
        own_labels[SOURCE_LABEL] = str(folder)
        make_importable([folder])
    documents = Batch(
        name=_choose_name(name, inputs),
        graph=graph,
        items=read_documents(inputs, workflow, id_field=id_field),
        labels=own_labels,
        priority=priority,
        in_flight_max=in_flight or _choose_in_flight_max(settings),
        retries_failed=is_retried,
        names=FILE_NAMES,
    )
    if is_retried:
        _warn_about_clean_up(workflow)
    with reserve_stdout() as out:
        reporting = ReportOptions(CommandHints(location, settings.is_remote), out, output, as_json)
        if settings.is_remote:
            return asyncio.run(run_batch_on_server(documents, settings, reporting))
        check_functions(workflow, file, settings)
        print_warnings([workflow], settings)
        return asyncio.run(run_batch_locally(documents, settings, reporting))


def _warn_about_clean_up(workflow: Workflow) -> None:
    clean_up = [node.id for node in workflow.nodes if node.run_when in CLEAN_UP_RULES]
    if clean_up:
        print_to_stderr(
            "warning: --retry-failed reuses the results of completed nodes, which the clean-up of "
            f"{join_names(clean_up, 3)} may have undone; 'runnel rerun --all' runs every node"
        )


def _choose_name(given: str | None, inputs: str) -> str:
    if inputs == STDIN and given is None:
        raise InputError(
            "--inputs -: give the batch a --name, so that the same command can continue it"
        )
    name = Path(inputs).name if given is None else given
    check_text(name, "--name", chars_max=NAME_CHARS_MAX)
    return name


def _choose_in_flight_max(settings: Settings) -> int:
    if settings.is_remote:
        return IN_FLIGHT_MAX
    return IN_FLIGHT_PER_SLOT * settings.worker_concurrency
