"""The program `runnel`: what happens to its commands and their errors.

Of an import of this module Typer takes the most: whatever else a command needs, it imports itself.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from runnel import __version__
from runnel.cli import errors as exits
from runnel.cli.errors import prepare_streams, report_error

# The commands of `runnel`: where each is, and in which part of the help; imported when called.


class CommandEntry(NamedTuple):
    """A function of a module of `runnel.cli`, or its `app` with commands of its own."""

    panel: str
    module: str
    function: str
    example: str = ""


_WRITE, _RUN, _OPERATE = "Write workflows", "Run them", "Look and act"
_SERVE = "Run them on servers"

COMMANDS = {
    "run": CommandEntry(_RUN, "commands.run", "run", "runnel run report.yaml --input year=2026"),
    "resume": CommandEntry(_RUN, "commands.resume", "resume", "runnel resume @last"),
    "rerun": CommandEntry(
        _RUN, "commands.rerun", "rerun", "runnel rerun @last --from parse --input year=2025"
    ),
    "batch": CommandEntry(
        _RUN,
        "commands.batch",
        "batch",
        "runnel batch invoice.yaml --inputs invoices.jsonl --output results.jsonl",
    ),
    "init": CommandEntry(_WRITE, "commands.init", "init", "runnel init my-project"),
    "validate": CommandEntry(_WRITE, "commands.files", "validate", "runnel validate report.yaml"),
    "graph": CommandEntry(
        _WRITE, "commands.files", "graph", "runnel graph report.yaml --mermaid > report.mmd"
    ),
    "export": CommandEntry(_WRITE, "commands.files", "export", "runnel export flow.py > flow.yaml"),
    "schema": CommandEntry(
        _WRITE, "commands.files", "schema", "runnel schema > runnel.schema.json"
    ),
    "orchestrator": CommandEntry(
        _SERVE,
        "commands.serve",
        "orchestrator",
        "runnel orchestrator --redis-url redis://localhost:6379/0",
    ),
    "worker": CommandEntry(
        _SERVE, "commands.serve", "worker", "runnel worker --queues python --concurrency 16"
    ),
    "api": CommandEntry(_SERVE, "commands.api", "api", "runnel api --port 8080 --workers 2"),
    "workers": CommandEntry(_SERVE, "commands.queues", "workers", "runnel workers"),
    "queues": CommandEntry(_SERVE, "commands.queues", "queues", "runnel queues --json"),
    "trim": CommandEntry(_SERVE, "commands.operate", "trim", "runnel trim"),
    "dev": CommandEntry(_SERVE, "commands.dev", "dev", "runnel dev --port 8080"),
    "doctor": CommandEntry(_SERVE, "commands.operate", "doctor", "runnel doctor"),
    "bench": CommandEntry(
        _SERVE, "commands.bench", "bench", "runnel bench diamond --backend sqlite"
    ),
    "config": CommandEntry(_SERVE, "commands.operate", "config", "RUNNEL_ENV=prod runnel config"),
    "workflows": CommandEntry(
        _OPERATE, "commands.workflows", "workflows", "runnel workflows report --diff 1"
    ),
    "list": CommandEntry(
        _OPERATE, "commands.list", "list_executions", "runnel list --status failed --limit 5"
    ),
    "top": CommandEntry(_OPERATE, "commands.top", "top", "runnel top"),
    "show": CommandEntry(_OPERATE, "commands.show", "show", "runnel show @last"),
    "watch": CommandEntry(_OPERATE, "commands.show", "watch", "runnel watch @last"),
    "history": CommandEntry(_OPERATE, "commands.show", "history", "runnel history @last"),
    "signal": CommandEntry(
        _OPERATE, "commands.signal", "signal", "runnel signal @last approve --payload by=ada"
    ),
    "cancel": CommandEntry(
        _OPERATE, "commands.cancel", "cancel", "runnel cancel 01m7gj --reason 'wrong file'"
    ),
    "version": CommandEntry(_OPERATE, "main", "version", "runnel version"),
    "schedule": CommandEntry(_RUN, "commands.schedule", "app"),
    "webhook": CommandEntry(_RUN, "commands.webhook", "app"),
    "dlq": CommandEntry(_OPERATE, "commands.dlq", "app"),
    "token": CommandEntry(_SERVE, "commands.token", "app"),
}


class LazyCommandGroup(TyperGroup):
    """Imports and builds a command when it is asked for: a call needs one of forty.

    Three calls each in turn, on busy cores: --version took 98 ms of processor time instead of 186,
    a run of three nodes 575 instead of 650.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _LazyCommands()


class _LazyCommands(Mapping[str, Any]):
    """Every name is there from the beginning, a command from when it is first looked at."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build_command(name, COMMANDS[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _build_command(name: str, entry: CommandEntry) -> Any:
    found = getattr(importlib.import_module(f"runnel.cli.{entry.module}"), entry.function)
    home = typer.Typer(rich_markup_mode="rich")
    if isinstance(found, typer.Typer):
        home.add_typer(found, name=name, rich_help_panel=entry.panel)
    else:
        epilog = f"Example:  [bold]{entry.example}[/bold]"
        home.command(name, epilog=epilog, rich_help_panel=entry.panel)(found)
    return typer.main.get_group(home).commands[name]


# `runnel version`


def version() -> int:
    """Print the version."""
    print(f"runnel {__version__}")
    return exits.OK


app = typer.Typer(
    name="runnel",
    cls=LazyCommandGroup,
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
