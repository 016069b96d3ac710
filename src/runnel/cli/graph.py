"""`runnel graph FILE`"""

import shutil
import sys
from typing import Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import File, Place

COLUMNS_WITHOUT_TERMINAL = 100


def graph(
    file: File,
    *,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print Mermaid text, for documents and web pages.")
    ] = False,
    as_svg: Annotated[
        bool, typer.Option("--svg", help="Print an SVG image, for documents and web pages.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, edges and layers as one JSON object.")
    ] = False,
) -> int:
    """Draw a workflow: what runs after what, and what runs in parallel."""
    from runnel.cli.documents import load_graph
    from runnel.cli.options import configure
    from runnel.errors import InputError

    forms = {"--mermaid": as_mermaid, "--svg": as_svg, "--json": as_json}
    asked = [form for form, is_asked in forms.items() if is_asked]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} are different forms; give one of them")
    found = load_graph(file, configure(Place()))
    if as_json:
        from runnel.cli.words import compact
        from runnel.drawing.data import graph_document

        print(compact(graph_document(found)))
    elif as_svg:
        from runnel.cli.drawing.svg import NODES_MAX, svg

        if len(found) > NODES_MAX:
            raise InputError(
                f"--svg: {len(found):,} nodes make no picture that can be read, at most "
                f"{NODES_MAX} do; --json has all of them"
            )
        print(svg(found))
    elif as_mermaid:
        from runnel.drawing.mermaid import mermaid

        print(mermaid(found))
    else:
        from runnel.cli.drawing.picture import draw

        print(draw(found, columns=_columns()))
    return exits.OK


def _columns() -> int:
    if not sys.stdout.isatty():
        return COLUMNS_WITHOUT_TERMINAL
    return shutil.get_terminal_size().columns
