"""Executions as requests and answers have them."""

from typing import Any

from pydantic import BaseModel, Field

from runnel.api.models.asked import Asked
from runnel.api.models.moments import Moment
from runnel.core.states import ExecutionState, NodeState
from runnel.reruns import Rerun


class Summary(BaseModel):
    """An execution as lists show it."""

    execution_id: str
    workflow: str
    version: int
    status: ExecutionState
    error: str | None
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    parent_id: str | None
    rerun_of: str | None
    labels: dict[str, str]


class Listed(Summary):
    workflow_definition_id: str = Field(description="The hash of the workflow's content")


class ExecutionPage(BaseModel):
    items: list[Listed]
    next: str | None = Field(description="Give this as `after` to get the next page")


class StateCount(BaseModel):
    number: int
    is_least: bool = Field(description="There may be more: counting went no further")


class Counts(BaseModel):
    states: dict[ExecutionState, StateCount]


class NodeAnswer(BaseModel):
    """A node of an execution; `items` is only there for a map."""

    state: NodeState
    attempts: int
    output: Any
    error: str | None
    started_at: Moment | None
    finished_at: Moment | None
    reason: str | None
    waits_for: str | None
    due: Moment | None
    items_settled: int | None
    items: int | None
    traceback: str | None


class ExecutionAnswer(Summary):
    """An execution with its nodes."""

    input: Any
    output: Any
    nodes: dict[str, NodeAnswer]


class HistoryItem(BaseModel):
    at: Moment
    event: str
    fields: dict[str, Any]


class HistoryAnswer(BaseModel):
    items: list[HistoryItem]


class TriggerRequest(Asked):
    """What a held execution starts with."""

    input_params: Any = Field(
        default=None, description="By default the input that it was submitted with"
    )


class Triggered(BaseModel):
    execution_id: str
    status: ExecutionState


class CancelRequest(Asked):
    reason: str = Field(default="", description="It is kept with the execution")
    force: bool = Field(default=False, description="Clean-up nodes do not run either")


class SignalRequest(Asked):
    name: str = Field(description="What the node waits for")
    payload: Any = None
    signal_id: str | None = Field(
        default=None, description="The same one is taken once, however often it is sent"
    )


class RerunWish(Asked):
    """What of an execution is run again: by default what did not complete, and all behind it."""

    nodes: list[str] = Field(
        default=[], max_length=1_000, description="Run these again, and all behind them"
    )
    whole: bool | None = Field(default=None, description="Run everything again")
    newest: bool = Field(default=False, description="Follow the newest version of the workflow")
    configs: dict[str, Any] = Field(default={}, description="Replace the configs of these nodes")

    def to_rerun(self) -> Rerun:
        return Rerun(
            again=self.nodes,
            is_whole=self.whole,
            is_newest=self.newest,
            configs=self.configs,
        )


class RerunRequest(RerunWish):
    """By default, what did not complete, and all behind it, with the same input."""

    input: Any = None


class Accepted(BaseModel):
    """The request is stored; whoever runs the execution acts on it at once."""

    execution_id: str
