"""`runnel batch FILE --inputs documents.jsonl`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.commands.run import Concurrency, Labels
from runnel.cli.options import DataDir, RedisUrl, Server, StoreLocation, WorkflowFile

if TYPE_CHECKING:
    from runnel.settings.model import Settings


# Enough that no worker waits for this process to notice that an execution has ended.
IN_FLIGHT_ON_SERVER = 100
IN_FLIGHT_PER_SLOT = 2

Inputs = Annotated[
    str,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="The documents: one JSON value per line, or a .csv file; - reads stdin.",
        show_default=False,
    ),
]
IdField = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What tells documents apart, such as id or meta.number. "
        "[dim]\\[default: their content][/dim]",
        show_default=False,
    ),
]
BatchName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What tells batches apart. [dim]\\[default: the name of the inputs file][/dim]",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write what became of each as JSON lines.", show_default=False
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Run again what failed of those that failed.")
]
InFlightMax = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="How many may be under way at a time. "
        "[dim]\\[default: 100 on a server, 2 for each slot here][/dim]",
        show_default=False,
    ),
]
AsJsonSummary = Annotated[
    bool, typer.Option("--json", help="Print the sum of all as one JSON object at the end.")
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
    concurrency: Concurrency = None,
    as_json: AsJsonSummary = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
    server: Server = None,
) -> int:
    """Run a workflow for each document of a file.

    Killed or interrupted, the same command goes on: what is done is not done again.

    Exit code: 0 all completed, 1 some failed or were cancelled, 2 bad input, 130 interrupted.
    """
    import asyncio

    from runnel.authoring.functions import SOURCE_LABEL
    from runnel.cli.options import read_labels
    from runnel.cli.session.batch_documents import read_documents
    from runnel.cli.session.batch_feeder import DocumentBatch
    from runnel.cli.session.batch_output import check_output
    from runnel.cli.session.batch_run import ReportOptions, run_batch_locally, run_batch_on_server
    from runnel.cli.session.hints import CommandHints
    from runnel.cli.session.inputs import (
        check_functions,
        get_import_folder,
        load_graph,
        make_importable,
    )
    from runnel.cli.streams import reserve_stdout

    place = StoreLocation(data_dir, redis_url, server)
    settings = _configure(place, concurrency)
    check_output(output, [Path(inputs), file])
    graph = load_graph(file, settings)
    workflow = graph.workflow
    own_labels = read_labels(labels or [])
    folder = get_import_folder(file)
    if not settings.is_remote:
        own_labels[SOURCE_LABEL] = str(folder)
        make_importable([folder])
    wanted = DocumentBatch(
        name=_choose_name(name, inputs),
        graph=graph,
        documents=read_documents(inputs, workflow, id_field=id_field),
        labels=own_labels,
        in_flight_max=in_flight or _choose_in_flight_max(settings),
        retries_failed=is_retried,
    )
    with reserve_stdout() as out:
        reporting = ReportOptions(CommandHints(place, settings.is_remote), out, output, as_json)
        if settings.is_remote:
            return asyncio.run(run_batch_on_server(wanted, settings, reporting))
        check_functions(workflow, file, settings)
        return asyncio.run(run_batch_locally(wanted, settings, reporting))


def _configure(location: StoreLocation, concurrency: int | None) -> "Settings":
    from runnel.cli.options import configure
    from runnel.errors import InputError

    settings = configure(location, concurrency=concurrency)
    if settings.is_remote and concurrency is not None:
        raise InputError(
            "--concurrency: on a server it is that of each worker; give it to 'runnel worker'"
        )
    return settings


def _choose_name(given: str | None, inputs: str) -> str:
    from runnel.authoring.payloads import check_text
    from runnel.cli.session.batch_documents import STDIN
    from runnel.errors import InputError

    if inputs == STDIN and given is None:
        raise InputError("--inputs -: give the batch a --name, so that it can be gone on with")
    name = Path(inputs).name if given is None else given
    check_text(name, "--name", chars_max=200)
    return name


def _choose_in_flight_max(settings: "Settings") -> int:
    if settings.is_remote:
        return IN_FLIGHT_ON_SERVER
    return IN_FLIGHT_PER_SLOT * settings.worker_concurrency
