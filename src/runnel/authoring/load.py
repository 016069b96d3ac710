"""Loads a workflow from a file or a text, in YAML or JSON."""

from pathlib import Path

from runnel.authoring.children import Resolve
from runnel.authoring.document import read_document
from runnel.authoring.files import parse_data, read_data
from runnel.core.workflow import Workflow


def load_file(path: Path, *, resolve: Resolve | None = None) -> Workflow:
    """Raises InvalidWorkflowError with every problem of its shape; the graph is not judged yet."""
    return read_document(read_data(path), source=str(path), file=path, resolve=resolve)


def load_text(text: str, *, source: str = "workflow", resolve: Resolve | None = None) -> Workflow:
    """As load_file, for a text that is no file: it can't name files of child workflows."""
    return read_document(parse_data(text, source=source), source=source, resolve=resolve)
