"""What is kept is PostgreSQL's to delete; blobs that belong to nothing can only be in Redis."""

from runnel.backends.postgres import PostgresRetention
from runnel.backends.redis.retention import RedisRetention
from runnel.core.states import ExecutionState


class ArchivedRetention:
    def __init__(self, hot: RedisRetention, cold: PostgresRetention) -> None:
        self._hot = hot
        self._cold = cold

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Redis has forgotten them long before, or does so a minute after their end."""
        return await self._cold.delete_finished(state, before=before, limit=limit)

    async def delete_ownerless(self, *, idle_s: float) -> int:
        """PostgreSQL gets a blob with its command, or with the events of an execution it knows."""
        return await self._hot.delete_ownerless(idle_s=idle_s)
