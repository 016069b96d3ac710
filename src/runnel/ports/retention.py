"""How long what has ended is kept."""

from typing import Protocol

from runnel.core.states import ExecutionState


class Retention(Protocol):
    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes root executions that ended in this state before then, with all their children.

        At most `limit`, the oldest first, and none of which a child still runs; returns how many.
        """
