"""How a process learns at once which executions have changed, whoever has changed them.

A store keeps one short entry for each of its last commits, about 10,000: it says what to look at
again, and not what happened there, which the history tells.
"""

from collections.abc import Sequence
from typing import NewType, Protocol

import msgspec

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState

FeedPosition = NewType("FeedPosition", str)


class ExecutionChange(msgspec.Struct, frozen=True, gc=False):
    """`state` is that of the header if the commit has written it, or a submit has; None when only
    something inside the execution is new. `position` is the place behind this change.

    The same state may be told twice.
    """

    execution_id: ExecutionId
    state: ExecutionState | None
    position: FeedPosition


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """`has_gap`: what changed since the position that was asked for is not known any more.

    There are no changes then, `position` is the end, and the reader has to look at all it wants
    to know after it has got this page.
    """

    changes: Sequence[ExecutionChange]
    position: FeedPosition
    has_gap: bool = False


class Feed(Protocol):
    """What was stored by a commit or a submit, children included, is told to each reader.

    In one order for all, in which the changes of an execution are as they were stored. Keys of
    concurrency are not in it, nor is what retention deletes.
    """

    async def end(self) -> FeedPosition:
        """Behind all that is stored by now; it outlives the process that has asked."""

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        """Up to `limit` changes behind `after`, waiting at most `wait_s` for the first.

        Cancelling the call loses nothing: the position is the reader's own. Any text may be given
        for a position: one that the store does not know is a gap.
        """
