"""`runnel validate FILE`"""

import shutil
import sys
from typing import Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import StoreLocation, WorkflowFile


def validate(file: WorkflowFile) -> int:
    """Check a workflow file: all its problems at once, or "ok".

    The functions that a document names are not imported: whether they exist is seen when it is
    run. A Python file is imported.
    """
    from runnel.cli.options import configure
    from runnel.cli.render.text import format_count
    from runnel.cli.session.inputs import load_graph

    graph = load_graph(file, configure(StoreLocation()))
    print(f"ok: {format_count(len(graph), 'node')}, {format_count(len(graph.layers()), 'layer')}")
    return exits.OK


# `runnel graph FILE`

COLUMNS_WITHOUT_TERMINAL = 100


def graph(
    file: WorkflowFile,
    *,
    as_mermaid: Annotated[
        bool,
        typer.Option("--mermaid", help="Print Mermaid text, for documents and web pages."),
    ] = False,
    as_svg: Annotated[
        bool, typer.Option("--svg", help="Print an SVG image, for documents and web pages.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, edges and layers as one JSON object.")
    ] = False,
) -> int:
    """Draw a workflow: what runs after what, and what runs in parallel."""
    from runnel.cli.options import configure
    from runnel.cli.session.inputs import load_graph
    from runnel.errors import InputError

    forms = {"--mermaid": as_mermaid, "--svg": as_svg, "--json": as_json}
    asked = [form for form, is_asked in forms.items() if is_asked]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} are different forms; give one of them")
    found = load_graph(file, configure(StoreLocation()))
    if as_json:
        from runnel.cli.render.text import to_compact_json
        from runnel.views import build_document
        from runnel.views.workflow import build_graph_view

        print(to_compact_json(build_document(build_graph_view(found))))
    elif as_svg:
        from runnel.cli.render.graph import SVG_NODES_MAX as NODES_MAX
        from runnel.cli.render.graph import render_svg

        if len(found) > NODES_MAX:
            raise InputError(
                f"--svg: {len(found):,} nodes make no picture that can be read, at most "
                f"{NODES_MAX} do; --json has all of them"
            )
        print(render_svg(found))
    elif as_mermaid:
        from runnel.views.workflow import render_mermaid

        print(render_mermaid(found))
    else:
        from runnel.cli.render.graph import draw_graph

        print(draw_graph(found, columns=_get_columns()))
    return exits.OK


def _get_columns() -> int:
    if not sys.stdout.isatty():
        return COLUMNS_WITHOUT_TERMINAL
    return shutil.get_terminal_size().columns


# `runnel export FILE`


def export(
    file: WorkflowFile,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> int:
    """Write a workflow down as YAML: the shortest document that is the same workflow.

    For a workflow in Python, or to see what a document comes to.
    """
    from runnel.authoring.documents.export import to_document
    from runnel.cli.options import configure
    from runnel.cli.session.inputs import load_graph

    document = to_document(load_graph(file, configure(StoreLocation())).workflow)
    if as_json:
        from runnel.cli.render.text import to_compact_json

        print(to_compact_json(document))
    else:
        from runnel.authoring.documents.yaml import write_yaml

        print(write_yaml(document), end="")
    return exits.OK


# `runnel schema`


def schema() -> int:
    """Print the JSON Schema of workflow files, for editors.

    In a YAML file: # yaml-language-server: $schema=runnel.schema.json
    """
    from runnel.authoring.documents.schema import read_shipped_schema

    print(read_shipped_schema(), end="")
    return exits.OK
