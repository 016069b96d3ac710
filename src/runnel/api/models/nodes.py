"""One node in all detail, as answers have it."""

from typing import Any

from pydantic import BaseModel, Field

from runnel.api.models.moments import Moment
from runnel.attempts import Outcome
from runnel.core.states import NodeState


class ErrorAnswer(BaseModel, extra="allow"):
    type: str
    message: str
    traceback: str | None = None


class LogLine(BaseModel):
    at: Moment
    level: str
    text: str


class AttemptAnswer(BaseModel, extra="allow"):
    """One attempt; `logs` are the last lines that its code has written by `ctx.logger`."""

    number: int
    outcome: Outcome
    worker: str
    queued_at: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    error: ErrorAnswer | None
    logs: list[LogLine]


class ItemAnswer(BaseModel):
    item: int
    state: NodeState
    attempts: int
    worker: str
    started_at: Moment | None
    finished_at: Moment | None
    error: ErrorAnswer | None
    output: Any
    child_id: str | None


class ItemsAnswer(BaseModel):
    count: int
    settled: int
    items: list[ItemAnswer]
    next: int | None = Field(description="Give this as `items_after` to get the next page")


class NodeDetailAnswer(BaseModel):
    """What it got, what came out, and every attempt; `items` is there for a map."""

    execution_id: str
    node_id: str
    item: int | None
    handler: str
    state: NodeState
    attempts: list[AttemptAnswer]
    config: Any = Field(description="As the last attempt got it, with secrets by name")
    config_error: str | None
    inputs: dict[str, Any]
    output: Any
    error: ErrorAnswer | None
    reason: str | None
    waits_for: str | None
    due: Moment | None
    started_at: Moment | None
    finished_at: Moment | None
    dependencies: dict[str, NodeState]
    child_id: str | None
    is_cached: bool
    items: ItemsAnswer | None
