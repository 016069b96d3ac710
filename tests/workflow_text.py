"""Loads a workflow from a YAML or JSON text."""

from runnel.authoring.documents import ResolveWorkflow, read_document
from runnel.authoring.documents.files import parse_data
from runnel.core.workflow import Workflow


def load_text(
    text: str, *, source: str = "workflow", resolve: ResolveWorkflow | None = None
) -> Workflow:
    return read_document(parse_data(text, source=source), source=source, resolve=resolve)
