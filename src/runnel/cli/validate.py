"""`runnel validate FILE`"""

from runnel.cli import exits
from runnel.cli.options import File, Place


def validate(file: File) -> int:
    """Check a workflow file: all its problems at once, or "ok".

    The functions that a document names are not imported: whether they exist is seen when it is
    run. A Python file is imported.
    """
    from runnel.cli.documents import load_graph
    from runnel.cli.options import configure
    from runnel.cli.words import count

    graph = load_graph(file, configure(Place()))
    print(f"ok: {count(len(graph), 'node')}, {count(len(graph.layers()), 'layer')}")
    return exits.OK
