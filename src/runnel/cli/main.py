"""The program `runnel`: its entry point and the table of its commands.

Typer takes most of the time to import this module. A command's module is imported when the command
is called. So each module of a command imports its dependencies at the top.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from runnel import __version__
from runnel.cli.command_group import CommandEntry, LazyCommandGroup
from runnel.cli.errors import OK, report_error
from runnel.cli.streams import prepare_streams

# The groups of `runnel --help`, in this order.
_RUN, _WRITE, _OPERATE, _SERVE = "Run", "Write", "Operate", "Serve"

COMMANDS = {
    "run": CommandEntry(
        _RUN, "Run a workflow and show its progress.", "runnel run report.yaml --input year=2026"
    ),
    "resume": CommandEntry(_RUN, "Resume interrupted executions.", "runnel resume @last"),
    "rerun": CommandEntry(
        _RUN,
        "Run the failed nodes of a finished execution again, and all nodes that depend on them.",
        "runnel rerun @last --from parse --input year=2025",
    ),
    "batch": CommandEntry(
        _RUN,
        "Run a workflow once for each document of a file.",
        "runnel batch invoice.yaml --inputs invoices.jsonl --output results.jsonl",
    ),
    "schedule": CommandEntry(_RUN, "Run workflows on a schedule.", function="app"),
    "webhook": CommandEntry(
        _RUN, "Run workflows when another service calls a webhook.", function="app"
    ),
    "init": CommandEntry(
        _WRITE, "Create a project with a workflow, its tasks and tests.", "runnel init my-project"
    ),
    "validate": CommandEntry(
        _WRITE,
        "Check a workflow file and print its problems.",
        "runnel validate report.yaml",
    ),
    "graph": CommandEntry(
        _WRITE,
        "Draw a workflow as a graph.",
        "runnel graph report.yaml --mermaid > report.mmd",
        module="files",
    ),
    "export": CommandEntry(
        _WRITE,
        "Print a workflow as a YAML document.",
        "runnel export flow.py > flow.yaml",
        module="files",
    ),
    "schema": CommandEntry(
        _WRITE,
        "Print the JSON Schema of workflow files, for editors.",
        "runnel schema > runnel.schema.json",
        module="files",
    ),
    "list": CommandEntry(
        _OPERATE,
        "List executions, newest first.",
        "runnel list --status failed --limit 5",
        function="list_executions",
    ),
    "show": CommandEntry(_OPERATE, "Show an execution or one of its nodes.", "runnel show @last"),
    "watch": CommandEntry(_OPERATE, "Follow an execution until it is final.", "runnel watch @last"),
    "history": CommandEntry(
        _OPERATE,
        "Print all events of an execution in order.",
        "runnel history @last",
        module="show",
    ),
    "top": CommandEntry(_OPERATE, "Watch executions, queues and workers live.", "runnel top"),
    "signal": CommandEntry(
        _OPERATE,
        "Send a signal to an execution, for example an approval.",
        "runnel signal @last approve --payload by=ada",
    ),
    "trigger": CommandEntry(
        _OPERATE,
        "Start a held execution, which was stored without starting it.",
        "runnel trigger @last --input year=2026",
        module="signal",
    ),
    "cancel": CommandEntry(
        _OPERATE,
        "Cancel one execution, or all executions that match the filters.",
        "runnel cancel 01m7gj --reason 'wrong file'",
    ),
    "dlq": CommandEntry(_OPERATE, "Inspect, retry and remove dead letters.", function="app"),
    "workflows": CommandEntry(
        _OPERATE,
        "List stored workflows, or the versions of one workflow.",
        "runnel workflows report --diff 1",
    ),
    "queues": CommandEntry(
        _OPERATE, "List queues with their waiting tasks and workers.", "runnel queues --json"
    ),
    "workers": CommandEntry(
        _OPERATE,
        "List workers with their state, load and queues.",
        "runnel workers",
        module="queues",
    ),
    "trim": CommandEntry(_OPERATE, "Delete expired executions and unused data now.", "runnel trim"),
    "doctor": CommandEntry(
        _OPERATE,
        "Check settings and servers, and suggest a fix for each problem.",
        "runnel doctor",
    ),
    "config": CommandEntry(
        _OPERATE,
        "Print every setting, its value and its source.",
        "RUNNEL_ENV=prod runnel config",
    ),
    "bench": CommandEntry(
        _OPERATE,
        "Measure how fast this machine runs workflows.",
        "runnel bench diamond --backend sqlite",
    ),
    "version": CommandEntry(_OPERATE, "Print the version.", "runnel version"),
    "dev": CommandEntry(
        _SERVE,
        "Run orchestrator, worker and HTTP API in one process, for development.",
        "runnel dev --port 8080",
    ),
    "api": CommandEntry(
        _SERVE,
        "Serve the HTTP API for executions on a Redis server.",
        "runnel api --port 8080 --workers 2",
    ),
    "orchestrator": CommandEntry(
        _SERVE,
        "Run an orchestrator, which schedules the tasks of executions on a Redis server.",
        "runnel orchestrator --redis-url redis://localhost:6379/0",
        module="serve",
    ),
    "worker": CommandEntry(
        _SERVE,
        "Run a worker, which runs tasks from queues on a Redis server.",
        "runnel worker --queues python --concurrency 16",
        module="serve",
    ),
    "token": CommandEntry(
        _SERVE, "Create, list and revoke tokens of the HTTP API.", function="app"
    ),
}


class RunnelGroup(LazyCommandGroup):
    table = COMMANDS


app = typer.Typer(
    name="runnel",
    cls=RunnelGroup,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Runs a command and returns its exit code; prints an error as a sentence on stderr."""
    prepare_streams()
    try:
        code = app(args=list(arguments), prog_name="runnel", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the boundary to the user
        return report_error(error)
    return code if isinstance(code, int) else OK


@app.callback(
    invoke_without_command=True,
    epilog="Begin with  [bold]runnel init my-project[/bold]",
)
def root(
    context: typer.Context,
    *,
    wants_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Run durable workflows on this machine or on servers.

    [bold]runnel resume[/bold] continues a run that was interrupted or killed.
    """
    if wants_version:
        print(f"runnel {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        return
    raise typer.Exit(OK)
