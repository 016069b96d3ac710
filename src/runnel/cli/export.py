"""`runnel export FILE`"""

from typing import Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import File, Place


def export(
    file: File,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> int:
    """Write a workflow down as YAML: the shortest document that is the same workflow.

    For a workflow in Python, or to see what a document comes to.
    """
    from runnel.authoring.export import to_document
    from runnel.cli.documents import load_graph
    from runnel.cli.options import configure

    document = to_document(load_graph(file, configure(Place())).workflow)
    if as_json:
        from runnel.cli.words import compact

        print(compact(document))
    else:
        from runnel.authoring.yaml_writing import write_yaml

        print(write_yaml(document), end="")
    return exits.OK
