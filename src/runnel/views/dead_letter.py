"""Views of dead letters, and the results of retries."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.views import Timestamp


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed its last attempt, with its config and error.

    It can be retried or purged.
    """

    name: Annotated[
        str, Meta(description="`execution/node`, or `execution/node[item]` for an item of a map")
    ]
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
    """A dead letter, with the state of the execution that a retry would rerun; null if deleted."""

    execution_status: ExecutionState | None


class DeadLetterCount(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class RetriedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A retry: execution `execution_id` reruns the failed nodes of execution `rerun_of`.

    The dead letters of `rerun_of` are deleted.
    """

    execution_id: ExecutionId
    rerun_of: ExecutionId
    letters: Sequence[str]


class RefusedRetry(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why the dead letters of the execution `rerun_of` can't be retried."""

    rerun_of: ExecutionId
    letters: Sequence[str]
    code: str
    message: str


class BulkRetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a bulk retry.

    `left` is the number of executions that a repeated call would retry.
    """

    retried: Sequence[RetriedLetters]
    refused: Sequence[RefusedRetry]
    left: int


class PurgedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deleted dead letters."""

    purged: int
