"""`runnel graph FILE`, `runnel export FILE` and `runnel schema`"""

import shutil
import sys
from typing import Annotated

import typer

from runnel.authoring.documents.export import to_document
from runnel.authoring.documents.schema import read_shipped_schema
from runnel.cli.options import StoreLocation, WorkflowFile, configure
from runnel.cli.render.graph import SVG_NODES_MAX, draw_graph, render_svg
from runnel.cli.render.text import to_compact_json
from runnel.cli.session.inputs import load_graph, load_valid_workflow
from runnel.errors import InputError
from runnel.views import build_document
from runnel.views.workflow import build_graph_view, render_mermaid

COLUMNS_WITHOUT_TERMINAL = 100


def graph(
    file: WorkflowFile,
    *,
    as_mermaid: Annotated[
        bool,
        typer.Option(
            "--mermaid", help="Print the graph as Mermaid text, for documents and web pages."
        ),
    ] = False,
    as_svg: Annotated[
        bool,
        typer.Option("--svg", help="Print the graph as an SVG image, for documents and web pages."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, edges and layers as one JSON object.")
    ] = False,
) -> None:
    """Draw a workflow as a graph."""
    forms = {"--mermaid": as_mermaid, "--svg": as_svg, "--json": as_json}
    chosen = [form for form, is_chosen in forms.items() if is_chosen]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are different output formats; give one of them")
    compiled = load_graph(file, configure(StoreLocation()))
    if as_json:
        print(to_compact_json(build_document(build_graph_view(compiled))))
    elif as_mermaid:
        print(render_mermaid(compiled))
    elif not as_svg:
        print(draw_graph(compiled, columns=_get_columns()))
    elif len(compiled) > SVG_NODES_MAX:
        raise InputError(
            f"--svg: {len(compiled):,} nodes are too many to draw, at most "
            f"{SVG_NODES_MAX} can be drawn; --json prints all of them"
        )
    else:
        print(render_svg(compiled))


def _get_columns() -> int:
    if not sys.stdout.isatty():
        return COLUMNS_WITHOUT_TERMINAL
    return shutil.get_terminal_size().columns


def export(
    file: WorkflowFile,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the workflow as JSON instead of YAML.")
    ] = False,
) -> None:
    """Print a workflow as a YAML document.

    The document is the shortest one that describes the same workflow. Use this command to convert a
    workflow in Python, or to check how Runnel reads a document.
    """
    document = to_document(load_valid_workflow(file, configure(StoreLocation())))
    if as_json:
        print(to_compact_json(document))
        return
    from runnel.authoring.documents.yaml import write_yaml  # 40 ms: only for YAML

    print(write_yaml(document), end="")


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors.

    Editors read this line of a YAML file: # yaml-language-server: $schema=runnel.schema.json
    """
    print(read_shipped_schema(), end="")
