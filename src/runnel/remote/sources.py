"""What can be run on a server: a name that is known there, or a workflow in any of its forms."""

from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.builder import STEP_HANDLER, WorkflowDAG
from runnel.authoring.export import to_document
from runnel.authoring.load import load_file
from runnel.authoring.python_files import load_workflow
from runnel.authoring.python_paths import python_file
from runnel.authoring.tracing.workflows import TracedWorkflow
from runnel.core.checks.wording import shown
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.errors import InputError

AnyWorkflow: TypeAlias = Workflow | TracedWorkflow[..., Any] | WorkflowDAG | Path
Runnable: TypeAlias = AnyWorkflow | str


def to_model(source: AnyWorkflow) -> Workflow:
    """Raises InvalidWorkflowError; a Python file is imported.

    Raises InputError for steps that are functions in this process: no server has them.
    """
    workflow = _loaded(source)
    for node in workflow.nodes:
        if node.handler == STEP_HANDLER:
            raise InputError(
                f"workflow {shown(workflow.name)}: step {shown(node.id)} is a function of this "
                "process, which a server can't call; use @workflow and @task, or add_node"
            )
    return workflow


def document_of(workflow: Workflow) -> dict[str, Json]:
    """With each node's whole retry policy: what is left out would be that of the server."""
    document = to_document(workflow)
    for node, written in zip(workflow.nodes, document["nodes"], strict=True):
        written["retry"] = msgspec.structs.asdict(node.retry)
        if node.child is not None:
            written["config"]["definition"] = document_of(node.child)
    return document


def _loaded(source: AnyWorkflow) -> Workflow:
    if isinstance(source, Workflow):
        return source
    if isinstance(source, TracedWorkflow | WorkflowDAG):
        return source.to_workflow()
    if isinstance(source, Path):
        file = python_file(str(source))
        return load_file(source) if file is None else load_workflow(file).to_workflow()
    raise InputError(
        f"expected the name of a workflow, a Path of a file, a @workflow or a WorkflowDAG, "
        f"got {shown(source)}"
    )
