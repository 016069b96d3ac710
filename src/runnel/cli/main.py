"""The program `runnel`: its entry point and the table of its commands.

Of an import of this module Typer takes the most: whatever else a command needs, it imports itself.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from runnel import __version__
from runnel.cli import errors as exits
from runnel.cli.command_group import CommandEntry, LazyCommandGroup
from runnel.cli.errors import report_error
from runnel.cli.streams import prepare_streams

_WRITE, _RUN, _OPERATE = "Write workflows", "Run them", "Look and act"
_SERVE = "Run them on servers"

COMMANDS = {
    "run": CommandEntry(
        _RUN,
        "commands.run",
        "run",
        "Run a workflow, and show how it goes.",
        "runnel run report.yaml --input year=2026",
    ),
    "resume": CommandEntry(
        _RUN,
        "commands.resume",
        "resume",
        "Go on with what was interrupted or killed: one execution, or all unfinished ones.",
        "runnel resume @last",
    ),
    "rerun": CommandEntry(
        _RUN,
        "commands.rerun",
        "rerun",
        "Run a finished execution again: what failed, and what depends on it.",
        "runnel rerun @last --from parse --input year=2025",
    ),
    "batch": CommandEntry(
        _RUN,
        "commands.batch",
        "batch",
        "Run a workflow for each document of a file.",
        "runnel batch invoice.yaml --inputs invoices.jsonl --output results.jsonl",
    ),
    "init": CommandEntry(
        _WRITE,
        "commands.init",
        "init",
        "Begin a project: a workflow, its tasks, and tests that pass.",
        "runnel init my-project",
    ),
    "validate": CommandEntry(
        _WRITE,
        "commands.files",
        "validate",
        'Check a workflow file: all its problems at once, or "ok".',
        "runnel validate report.yaml",
    ),
    "graph": CommandEntry(
        _WRITE,
        "commands.files",
        "graph",
        "Draw a workflow: what runs after what, and what runs in parallel.",
        "runnel graph report.yaml --mermaid > report.mmd",
    ),
    "export": CommandEntry(
        _WRITE,
        "commands.files",
        "export",
        "Write a workflow down as YAML: the shortest document that is the same workflow.",
        "runnel export flow.py > flow.yaml",
    ),
    "schema": CommandEntry(
        _WRITE,
        "commands.files",
        "schema",
        "Print the JSON Schema of workflow files, for editors.",
        "runnel schema > runnel.schema.json",
    ),
    "orchestrator": CommandEntry(
        _SERVE,
        "commands.serve",
        "orchestrator",
        "Decide what runs next, for executions on a Redis server.",
        "runnel orchestrator --redis-url redis://localhost:6379/0",
    ),
    "worker": CommandEntry(
        _SERVE,
        "commands.serve",
        "worker",
        "Run tasks that are queued on a Redis server.",
        "runnel worker --queues python --concurrency 16",
    ),
    "api": CommandEntry(
        _SERVE,
        "commands.api",
        "api",
        "Serve the HTTP API of a Redis server, for orchestrators and workers that run elsewhere.",
        "runnel api --port 8080 --workers 2",
    ),
    "workers": CommandEntry(
        _SERVE,
        "commands.queues",
        "workers",
        "List the workers of a server: what each one takes, how much it has, how it is.",
        "runnel workers",
    ),
    "queues": CommandEntry(
        _SERVE,
        "commands.queues",
        "queues",
        "List the queues of a server: how many tasks wait, since when, and who takes them.",
        "runnel queues --json",
    ),
    "trim": CommandEntry(
        _SERVE,
        "commands.operate",
        "trim",
        "Delete what nobody needs any more, now.",
        "runnel trim",
    ),
    "dev": CommandEntry(
        _SERVE,
        "commands.dev",
        "dev",
        "Everything in one process: it decides, runs tasks and answers HTTP requests.",
        "runnel dev --port 8080",
    ),
    "doctor": CommandEntry(
        _SERVE,
        "commands.operate",
        "doctor",
        "Check the settings and the servers, and say what to do about each problem.",
        "runnel doctor",
    ),
    "bench": CommandEntry(
        _SERVE,
        "commands.bench",
        "bench",
        "Measure how fast workflows go here, with nodes that do nothing.",
        "runnel bench diamond --backend sqlite",
    ),
    "config": CommandEntry(
        _SERVE,
        "commands.operate",
        "config",
        "Print every setting, its value and where that comes from; secrets are hidden.",
        "RUNNEL_ENV=prod runnel config",
    ),
    "workflows": CommandEntry(
        _OPERATE,
        "commands.workflows",
        "workflows",
        "List the workflows that were submitted, or the versions of one.",
        "runnel workflows report --diff 1",
    ),
    "list": CommandEntry(
        _OPERATE,
        "commands.list",
        "list_executions",
        "List executions, the newest first.",
        "runnel list --status failed --limit 5",
    ),
    "top": CommandEntry(
        _OPERATE,
        "commands.top",
        "top",
        "Watch everything at a glance: executions, queues, workers. Ctrl-C ends it.",
        "runnel top",
    ),
    "show": CommandEntry(
        _OPERATE,
        "commands.show",
        "show",
        "Show one execution: its nodes, input, output and error. Or one node of it.",
        "runnel show @last",
    ),
    "watch": CommandEntry(
        _OPERATE,
        "commands.show",
        "watch",
        "Follow an execution that another process runs, until it is final.",
        "runnel watch @last",
    ),
    "history": CommandEntry(
        _OPERATE,
        "commands.show",
        "history",
        "Print everything that happened to an execution, in order.",
        "runnel history @last",
    ),
    "signal": CommandEntry(
        _OPERATE,
        "commands.signal",
        "signal",
        "Send a signal to an execution, for instance an approval.",
        "runnel signal @last approve --payload by=ada",
    ),
    "cancel": CommandEntry(
        _OPERATE,
        "commands.cancel",
        "cancel",
        "Cancel an execution, whichever process runs it, or none; or all that the options say.",
        "runnel cancel 01m7gj --reason 'wrong file'",
    ),
    "version": CommandEntry(
        _OPERATE,
        "main",
        "version",
        "Print the version.",
        "runnel version",
    ),
    "schedule": CommandEntry(
        _RUN,
        "commands.schedule",
        "app",
        "Schedules: workflows that are run by the clock.",
    ),
    "webhook": CommandEntry(
        _RUN,
        "commands.webhook",
        "app",
        "Webhooks: workflows that are run when another service calls.",
    ),
    "dlq": CommandEntry(
        _OPERATE,
        "commands.dlq",
        "app",
        "Dead letters: tasks that failed in a way that a person has to look at.",
    ),
    "token": CommandEntry(
        _SERVE,
        "commands.token",
        "app",
        "Tokens for the HTTP API: as soon as there is one, every call needs one.",
    ),
}


class RunnelGroup(LazyCommandGroup):
    table = COMMANDS


def version() -> int:
    """Print the version."""
    print(f"runnel {__version__}")
    return exits.OK


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
    """The exit code; whatever the command raises has become a sentence on stderr."""
    prepare_streams()
    try:
        code = app(args=list(arguments), prog_name="runnel", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the boundary to the user
        return report_error(error)
    return code if isinstance(code, int) else exits.OK


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
    """Run workflows: durable, in parallel, on this machine or on servers.

    A run that was interrupted or killed goes on where it was: [bold]runnel resume[/bold]
    """
    if wants_version:
        version()
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        return
    raise typer.Exit(exits.OK)
