"""Workflows as requests and answers have them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Asked
from runnel.api.models.moments import Moment
from runnel.core.states import ExecutionState

VERSION_MAX = 2**31 - 1


class Submitted(BaseModel):
    """A workflow that was stored, and an execution that waits to be triggered."""

    workflow_definition_id: str = Field(description="The hash of the workflow's content")
    workflow: str
    version: int
    execution_id: str
    status: ExecutionState


class StoredWorkflow(BaseModel):
    """One version of a workflow."""

    name: str
    version: int
    workflow_definition_id: str
    nodes: int


class ListedWorkflow(StoredWorkflow):
    document: dict[str, Any] | None = Field(
        default=None, description="As it could be written in a file, if that was asked for"
    )


class WorkflowPage(BaseModel):
    items: list[ListedWorkflow]
    next: str | None = Field(description="Give this as `after` to get the next page")


class WorkflowDocument(StoredWorkflow):
    document: dict[str, Any] = Field(description="As it could be written in a file")


class Deleted(BaseModel):
    versions: int = Field(description="How many there were")


class Valid(BaseModel):
    """A document that would be taken."""

    name: str
    nodes: int
    layers: int


class GraphNode(BaseModel):
    id: str
    handler: str


class GraphAnswer(BaseModel):
    """Nodes, edges from parent to child, and layers: each holds what may run at once."""

    workflow: str
    nodes: list[GraphNode]
    edges: list[tuple[str, str]]
    layers: list[list[str]]


class RunRequest(Asked):
    """What an execution of a stored workflow begins with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": {"n": 1}}]})

    input: Any = Field(default=None, description="By default an empty object")
    labels: dict[str, str] = Field(default={})
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest"
    )


class Begun(BaseModel):
    """An execution that is stored, and runs as soon as a worker is free."""

    execution_id: str
    workflow: str
    version: int
    status: ExecutionState
    created_at: Moment | None = None
