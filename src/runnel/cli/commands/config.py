"""`runnel config`"""

from typing import Annotated

import typer

from runnel.cli.render.text import Cell, print_table, to_compact_json
from runnel.cli.streams import print_to_stderr
from runnel.settings import find_misspelled_variables, list_settings, read_sourced_settings


def config(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every setting.")
    ] = False,
) -> None:
    """Print every setting, its value and its source.

    Settings are environment variables; docs/reference/settings.md describes each one. Secrets are
    hidden.
    """
    lines = list_settings(read_sourced_settings())
    if as_json:
        print(to_compact_json({line.variable: line.value for line in lines}))
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
    for sentence in find_misspelled_variables():
        print_to_stderr(f"warning: {sentence}")
