"""`runnel validate FILE`"""

import shutil
import sys
from typing import Annotated

import typer

from runnel.cli import errors as exits
from runnel.cli.options import File, Place


def validate(file: File) -> int:
    """Check a workflow file: all its problems at once, or "ok".

    The functions that a document names are not imported: whether they exist is seen when it is
    run. A Python file is imported.
    """
    from runnel.cli.options import configure
    from runnel.cli.render.text import count
    from runnel.cli.session.inputs import load_graph

    graph = load_graph(file, configure(Place()))
    print(f"ok: {count(len(graph), 'node')}, {count(len(graph.layers()), 'layer')}")
    return exits.OK


# `runnel graph FILE`

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
    from runnel.cli.options import configure
    from runnel.cli.session.inputs import load_graph
    from runnel.errors import InputError

    forms = {"--mermaid": as_mermaid, "--svg": as_svg, "--json": as_json}
    asked = [form for form, is_asked in forms.items() if is_asked]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} are different forms; give one of them")
    found = load_graph(file, configure(Place()))
    if as_json:
        from runnel.cli.render.text import compact
        from runnel.views.workflow import graph_document

        print(compact(graph_document(found)))
    elif as_svg:
        from runnel.cli.render.graph import SVG_NODES_MAX as NODES_MAX
        from runnel.cli.render.graph import svg

        if len(found) > NODES_MAX:
            raise InputError(
                f"--svg: {len(found):,} nodes make no picture that can be read, at most "
                f"{NODES_MAX} do; --json has all of them"
            )
        print(svg(found))
    elif as_mermaid:
        from runnel.views.workflow import mermaid

        print(mermaid(found))
    else:
        from runnel.cli.render.graph import draw

        print(draw(found, columns=_columns()))
    return exits.OK


def _columns() -> int:
    if not sys.stdout.isatty():
        return COLUMNS_WITHOUT_TERMINAL
    return shutil.get_terminal_size().columns


# `runnel export FILE`


def export(
    file: File,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> int:
    """Write a workflow down as YAML: the shortest document that is the same workflow.

    For a workflow in Python, or to see what a document comes to.
    """
    from runnel.authoring.documents.export import to_document
    from runnel.cli.options import configure
    from runnel.cli.session.inputs import load_graph

    document = to_document(load_graph(file, configure(Place())).workflow)
    if as_json:
        from runnel.cli.render.text import compact

        print(compact(document))
    else:
        from runnel.authoring.documents.yaml import write_yaml

        print(write_yaml(document), end="")
    return exits.OK


# `runnel schema`


def schema() -> int:
    """Print the JSON Schema of workflow files, for editors.

    In a YAML file: # yaml-language-server: $schema=runnel.schema.json
    """
    from runnel.authoring.documents.schema import shipped_schema

    print(shipped_schema(), end="")
    return exits.OK
