"""Dead letters as requests and answers have them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Asked
from runnel.api.models.moments import Moment
from runnel.core.checks.values import NAME_CHARS_MAX
from runnel.core.states import ExecutionState

RETRIED_MAX = 100


class DeadLetterAnswer(BaseModel):
    """A task that needs a person: what it was given, and what was wrong with it."""

    name: str = Field(description="`execution/node`, or `execution/node/item`")
    execution_id: str
    workflow: str
    node: str
    item: int | None
    attempts: int
    queue: str
    handler: str
    reason: str
    error: str
    traceback: str | None
    config: Any
    rejected_at: Moment


class DeadLetterDetail(DeadLetterAnswer):
    """`execution_status` is that of the execution that a retry would rerun; null without one."""

    execution_status: ExecutionState | None


class DeadLetterPage(BaseModel):
    items: list[DeadLetterAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class DeadLetterCount(BaseModel):
    count: int


class RetryRequest(Asked):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"configs": {"parse": {"year": 2026}}}]}
    )

    configs: dict[str, Any] = Field(
        default={}, description="Replace the configs of these nodes of the execution"
    )


class Selection(Asked):
    """Which letters are meant: those that all of the given fields hold for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "python"}, {"all": True}]})

    queue: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    workflow: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    execution: str = Field(
        default="", max_length=500, description="The beginning of an execution's id"
    )
    older_than_s: float = Field(
        default=0.0, ge=0, le=1e9, description="Rejected at least so long ago"
    )
    all: bool = Field(default=False, description="Needed when nothing else is given")


class BulkRetryRequest(Selection):
    limit: int = Field(
        default=RETRIED_MAX, ge=1, le=RETRIED_MAX, description="So many executions at most"
    )


class RetriedAnswer(BaseModel):
    """All letters of `rerun_of` are gone: `execution_id` runs again what failed there."""

    execution_id: str
    rerun_of: str
    letters: list[str]


class NotRetried(BaseModel):
    rerun_of: str
    letters: list[str]
    code: str
    message: str


class BulkRetried(BaseModel):
    """`left` executions have letters that were asked for and not looked at: call again."""

    retried: list[RetriedAnswer]
    refused: list[NotRetried]
    left: int


class Purged(BaseModel):
    purged: int
