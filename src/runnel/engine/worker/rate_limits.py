"""Rate limits: a token is taken just before user code, from a bucket that all workers share."""

from collections.abc import Mapping

from runnel.core.effects import Task
from runnel.core.workflow import RateLimit
from runnel.ports.store import TaskQueue

# Up to this long a task waits here without a slot; beyond, the store keeps it and sets a timer.
PARK_S_MAX = 5.0


class RateLimits:
    """`table` holds the limits of tags for which the workflow itself gives none."""

    def __init__(self, tasks: TaskQueue, table: Mapping[str, RateLimit]) -> None:
        self._tasks = tasks
        self._table = table

    def limit_of(self, task: Task) -> RateLimit | None:
        if task.resource_tag is None:
            return None
        if task.rate_per_second is not None:
            return RateLimit(rate_per_second=task.rate_per_second, burst=task.burst)
        return self._table.get(task.resource_tag)

    async def take(self, task: Task, limit: RateLimit, *, may_park: bool) -> float:
        """Seconds until the task may run; above what may be parked, no token was taken."""
        return await self._tasks.take_token(
            task.resource_tag or "",
            rate_per_second=limit.rate_per_second,
            burst=limit.burst,
            wait_s_max=PARK_S_MAX if may_park else 0.0,
        )
