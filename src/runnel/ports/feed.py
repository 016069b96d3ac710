"""The change feed: notifies processes of executions that any process has changed.

A store keeps one short entry for each of its last commits, about 10,000. An entry says which
execution to read again. The history says what happened to it.
"""

from collections.abc import Sequence
from typing import NewType, Protocol

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState

FeedPosition = NewType("FeedPosition", str)


class ExecutionChange(msgspec.Struct, frozen=True, gc=False):
    """A notification that an execution has changed. The same state may be published twice.

    `state` is the state in the header, if the commit or submit wrote the header. It is None if only
    something inside the execution changed. `position` is the position after this change.
    """

    execution_id: ExecutionId
    state: ExecutionState | None
    position: FeedPosition


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of changes. With `has_gap`, the store no longer knows the changes since the position.

    Then `changes` is empty and `position` is the end of the feed. After such a page, the reader
    must read again every execution that it follows.
    """

    changes: Sequence[ExecutionChange]
    position: FeedPosition
    has_gap: bool = False


class Feed(Protocol):
    """Publishes every commit and submit to each reader, child executions included.

    All readers see the same order. The changes of one execution are in the order in which they were
    stored. Concurrency keys and deletions by retention are not published.
    """

    async def end(self) -> FeedPosition:
        """Returns the position after everything stored so far.

        It outlives the process that asked.
        """

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """Returns up to `limit` changes after the position; waits at most `wait_s` for the first.

        A cancelled call loses nothing, because the reader keeps its own position. A position that
        the store does not know, which may be any text, counts as a gap.
        """
