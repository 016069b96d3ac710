"""The change feed: notifies processes of executions that any process has changed.

A store keeps one short entry for each of its last 10,000 commits, approximately. An entry only
names the execution that changed. The reader reads the change itself from the execution's history.
"""

from collections.abc import Sequence
from typing import NewType, Protocol

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState

FeedPosition = NewType("FeedPosition", str)


class ExecutionChange(msgspec.Struct, frozen=True, gc=False):
    """A notification that an execution has changed. Two notifications may have the same state.

    `state` is the state in the header, if the commit or submit wrote the header. `state` is None if
    only nodes or items of the execution changed. `position` is the feed position after this change.
    """

    execution_id: ExecutionId
    state: ExecutionState | None
    position: FeedPosition


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of changes.

    If `has_gap`, the store has already deleted changes after the requested position. In that case
    `changes` is empty, `position` is the end of the feed, and the reader must read again every
    execution that it follows.
    """

    changes: Sequence[ExecutionChange]
    position: FeedPosition
    has_gap: bool = False


class Feed(Protocol):
    """Publishes every commit and submit to each reader, child executions included.

    All readers receive the changes in the same order. The changes of one execution are in the order
    in which they were stored. Concurrency keys and deletions by retention are not published.
    """

    async def end(self) -> FeedPosition:
        """Returns the position after everything stored so far.

        The position stays valid after the calling process has ended.
        """

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """Returns up to `limit` changes after the position; waits at most `wait_s` for the first.

        A cancelled call loses nothing, because the reader keeps its own position. The position may
        be any text: the store returns a page with `has_gap` for a position that it does not know.
        """
