"""Loads a workflow from a file or a text, in YAML or JSON."""

from pathlib import Path

from runnel.authoring.children import Resolve
from runnel.authoring.document import read_document
from runnel.authoring.files import parse_data, read_data
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import Workflow


def load_file(
    path: Path, *, resolve: Resolve | None = None, retry: RetryPolicy | None = None
) -> Workflow:
    """Raises InvalidWorkflowError with every problem of its shape; the graph is not judged yet.

    `retry` fills in what the nodes do not say about theirs.
    """
    data = read_data(path)
    return read_document(data, source=str(path), file=path, resolve=resolve, retry=retry)


def load_text(
    text: str,
    *,
    source: str = "workflow",
    resolve: Resolve | None = None,
    retry: RetryPolicy | None = None,
) -> Workflow:
    """As load_file, for a text that is no file: it can't name files of child workflows."""
    data = parse_data(text, source=source)
    return read_document(data, source=source, resolve=resolve, retry=retry)
