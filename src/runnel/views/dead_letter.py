"""Tasks that need a person, and what became of a retry."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.views import Timestamp


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that needs a person: what it was given, and what was wrong with it."""

    name: Annotated[str, Meta(description="`execution/node`, or `execution/node/item`")]
    execution_id: ExecutionId
    workflow: str
    node: str
    item: int | None
    attempts: int
    queue: str
    handler: str
    reason: str
    error: str
    traceback: str | None
    config: Json
    rejected_at: Timestamp


class DeadLetterDetail(DeadLetterView, frozen=True, kw_only=True):
    """`execution_status` is that of the execution that a retry would rerun; null without one."""

    execution_status: ExecutionState | None


class DeadLetterCount(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class RetriedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """All letters of `rerun_of` are gone: `execution_id` runs again what failed there."""

    execution_id: ExecutionId
    rerun_of: ExecutionId
    letters: Sequence[str]


class RefusedRetry(msgspec.Struct, frozen=True, kw_only=True):
    """The letters of `rerun_of` can't be retried."""

    rerun_of: ExecutionId
    letters: Sequence[str]
    code: str
    message: str


class BulkRetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """`left` executions have letters that were asked for and not looked at: call again."""

    retried: Sequence[RetriedLetters]
    refused: Sequence[RefusedRetry]
    left: int


class PurgedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters were removed."""

    purged: int
