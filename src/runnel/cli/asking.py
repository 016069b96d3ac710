"""Whether something is really meant."""

import sys

import typer

from runnel.errors import InputError


def ask(question: str, otherwise: str) -> None:
    """Raises Abort for a no; InputError, with `otherwise`, when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise InputError(f"{otherwise}; say so with --yes")
    typer.confirm(question, abort=True, err=True)
