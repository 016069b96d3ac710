"""How long what has ended is kept."""

from typing import Protocol

from runnel.core.states import ExecutionState


class Retention(Protocol):
    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes root executions that ended in this state before then, with all their children.

        At most `limit`, the oldest first, and none of which a child still runs; returns how many.
        """

    async def delete_ownerless(self, *, idle_s: float) -> int:
        """Deletes blobs whose execution there is not, and which were not touched for so long.

        What a process has left that died before its command was stored; returns how many.
        """
