"""Commands that have commands of their own."""

import typer

from runnel.cli import exits


def group(help_: str, *, begin: str) -> typer.Typer:
    """Called without a command it prints its help; `begin` is the call that the help ends with."""
    app = typer.Typer(help=help_, epilog=f"Begin with  [bold]{begin}[/bold]")
    app.callback(invoke_without_command=True)(_root)
    return app


def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(exits.OK)
