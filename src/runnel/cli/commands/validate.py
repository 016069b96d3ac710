"""`runnel validate FILE`"""

from runnel.cli.options import StoreLocation, WorkflowFile, configure
from runnel.cli.render.text import format_count
from runnel.cli.session.inputs import load_graph, print_warnings


def validate(file: WorkflowFile) -> None:
    """Check a workflow file and print its problems.

    Problems of keys and types are printed first. Problems of the graph are printed once the keys
    and types are right.

    Warnings name secrets that this process does not have, and resource tags without a rate limit.

    A Python file is imported. The functions that a YAML or JSON file names are not imported:
    [bold]runnel run[/bold] reports a missing function.
    """
    settings = configure(StoreLocation())
    graph = load_graph(file, settings)
    print_warnings([graph.workflow], settings)
    print(f"ok: {format_count(len(graph), 'node')}, {format_count(len(graph.layers()), 'layer')}")
