"""`runnel config`"""

import sys
from typing import Annotated

import typer

from runnel.cli import exits


def config(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every setting.")
    ] = False,
) -> int:
    """Print every setting, its value and where that comes from; secrets are hidden.

    Settings are environment variables; docs/settings.md says what each one does.
    """
    from runnel.cli.tables import Cell, print_table
    from runnel.cli.words import compact
    from runnel.settings import look_alikes, read, shown

    reading = read()
    lines = shown(reading)
    if as_json:
        print(compact({line.variable: line.value for line in lines}))
    else:
        rows = [
            [
                Cell(line.variable, "bold" if line.is_given else ""),
                Cell(line.value),
                Cell(line.source, "cyan" if line.is_given else "dim"),
            ]
            for line in lines
        ]
        print_table(["SETTING", "VALUE", "FROM"], rows)
    for sentence in look_alikes():
        print(f"warning: {sentence}", file=sys.stderr)
    return exits.OK
