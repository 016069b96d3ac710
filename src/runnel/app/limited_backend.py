"""A backend whose rate tokens come from limiter objects of this process, not from its store."""

from collections.abc import Mapping, Sequence

from runnel.app.rate_limiter import TokenBucketRateLimiter
from runnel.core.commands import Command
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.ports import Backend
from runnel.ports.store import TaskQueue
from runnel.ports.workers import HeartbeatReply, QueueRecord, WorkerInfo, WorkerRecord

Limiters = Mapping[str, TokenBucketRateLimiter]


class LimitedBackend:
    """So that one limiter can be shared by executors that share nothing else."""

    def __init__(self, backend: Backend, limiters: Limiters) -> None:
        self.store = backend.store
        self.mailbox = backend.mailbox
        self.tasks: TaskQueue = LimitedTasks(backend.tasks, limiters)
        self.archive = backend.archive
        self.blobs = backend.blobs
        self.records = backend.records
        self.windows = backend.windows
        self.feed = backend.feed
        self._backend = backend

    async def claim_home_partition(self, owner: str) -> int:
        return await self._backend.claim_home_partition(owner)

    async def close(self) -> None:
        await self._backend.close()


class LimitedTasks:
    def __init__(self, tasks: TaskQueue, limiters: Limiters) -> None:
        self._tasks = tasks
        self._limiters = limiters

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        return self._limiters[tag].take(wait_s_max=wait_s_max)

    async def get_cached_result(self, key: str) -> bytes | None:
        return await self._tasks.get_cached_result(key)

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        await self._tasks.put_cached_result(key, data, ttl_s=ttl_s)

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        return await self._tasks.claim(
            worker, queues, limit=limit, wait_s=wait_s, starts_tasks=starts_tasks
        )

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        return await self._tasks.start(worker, tokens, now=now)

    def begin(self, token: TaskToken) -> None:
        self._tasks.begin(token)

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        return await self._tasks.report(worker, reports)

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        return await self._tasks.beat(worker, holds, about=about)

    async def drain(self, worker: str) -> bool:
        return await self._tasks.drain(worker)

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        return await self._tasks.wait_dropped(worker, wait_s=wait_s)

    async def leave(self, worker: str) -> None:
        await self._tasks.leave(worker)

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        return await self._tasks.workers(with_dead=with_dead)

    async def queues(self) -> Sequence[QueueRecord]:
        return await self._tasks.queues()
