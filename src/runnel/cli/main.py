"""The program `runnel`: its commands, and what happens to their errors.

Cold start, best of ten on 2 busy cores with Python 3.11 and Typer 0.28: --version 0.15 s, --help
0.29 s (Rich draws it), list 0.38 s, run of three nodes 0.54 s; with half as many commands it was
0.10, 0.19, 0.3 and 0.32. Of an import of this module, 152 ms by `python -X importtime -m runnel`,
Typer takes 69: whatever else a command needs, it imports itself.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from runnel.cli import dlq, exits, schedule, token, webhook
from runnel.cli.api import api
from runnel.cli.batch import batch
from runnel.cli.cancel import cancel
from runnel.cli.config import config
from runnel.cli.dev import dev
from runnel.cli.doctor import doctor
from runnel.cli.export import export
from runnel.cli.failures import tell
from runnel.cli.graph import graph
from runnel.cli.history import history
from runnel.cli.init import init
from runnel.cli.listing import list_executions
from runnel.cli.orchestrator import orchestrator
from runnel.cli.queues import queues
from runnel.cli.rerun import rerun
from runnel.cli.resume import resume
from runnel.cli.run import run
from runnel.cli.schema import schema
from runnel.cli.show import show
from runnel.cli.signal import signal
from runnel.cli.streams import make_printable
from runnel.cli.top import top
from runnel.cli.trim import trim
from runnel.cli.validate import validate
from runnel.cli.watch import watch
from runnel.cli.worker import worker
from runnel.cli.workers import workers
from runnel.cli.workflows import workflows

app = typer.Typer(
    name="runnel",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """The exit code; whatever the command raises has become a sentence on stderr."""
    make_printable()
    try:
        code = app(args=list(arguments), prog_name="runnel", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the boundary to the user
        return tell(error)
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


def version() -> int:
    """Print the version."""
    from runnel import __version__

    print(f"runnel {__version__}")
    return exits.OK


_WRITE, _RUN, _ACT = "Write workflows", "Run them", "Look and act"
_SERVE = "Run them on servers"

for _command, _panel, _example in (
    (run, _RUN, "runnel run report.yaml --input year=2026"),
    (resume, _RUN, "runnel resume @last"),
    (rerun, _RUN, "runnel rerun @last --from parse --input year=2025"),
    (batch, _RUN, "runnel batch invoice.yaml --inputs invoices.jsonl --output results.jsonl"),
    (init, _WRITE, "runnel init my-project"),
    (validate, _WRITE, "runnel validate report.yaml"),
    (graph, _WRITE, "runnel graph report.yaml --mermaid > report.mmd"),
    (export, _WRITE, "runnel export flow.py > flow.yaml"),
    (schema, _WRITE, "runnel schema > runnel.schema.json"),
    (orchestrator, _SERVE, "runnel orchestrator --redis-url redis://localhost:6379/0"),
    (worker, _SERVE, "runnel worker --queues python --concurrency 16"),
    (api, _SERVE, "runnel api --port 8080 --workers 2"),
    (workers, _SERVE, "runnel workers"),
    (queues, _SERVE, "runnel queues --json"),
    (trim, _SERVE, "runnel trim"),
    (dev, _SERVE, "runnel dev --port 8080"),
    (doctor, _SERVE, "runnel doctor"),
    (config, _SERVE, "RUNNEL_ENV=prod runnel config"),
    (workflows, _ACT, "runnel workflows report --diff 1"),
    (list_executions, _ACT, "runnel list --status failed --limit 5"),
    (top, _ACT, "runnel top"),
    (show, _ACT, "runnel show @last"),
    (watch, _ACT, "runnel watch @last"),
    (history, _ACT, "runnel history @last"),
    (signal, _ACT, "runnel signal @last approve --payload by=ada"),
    (cancel, _ACT, "runnel cancel 01m7gj --reason 'wrong file'"),
    (version, _ACT, "runnel version"),
):
    app.command(
        _command.__name__.removesuffix("_executions"),
        epilog=f"Example:  [bold]{_example}[/bold]",
        rich_help_panel=_panel,
    )(_command)
app.add_typer(schedule.app, name="schedule", rich_help_panel=_RUN)
app.add_typer(webhook.app, name="webhook", rich_help_panel=_RUN)
app.add_typer(dlq.app, name="dlq", rich_help_panel=_ACT)
app.add_typer(token.app, name="token", rich_help_panel=_SERVE)
