"""The program `runnel`: what happens to its commands and their errors.

Of an import of this module Typer takes the most: whatever else a command needs, it imports itself.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from runnel.cli import exits
from runnel.cli.commands import Commands
from runnel.cli.failures import tell
from runnel.cli.streams import make_printable
from runnel.cli.version import version

app = typer.Typer(
    name="runnel",
    cls=Commands,
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
