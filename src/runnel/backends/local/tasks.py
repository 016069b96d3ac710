"""The task queue of a store that keeps its tasks in the memory of this process.

This module also has token buckets, a result cache, request windows and the list of orchestrators.
Its class LocalStore has those methods of the Store port that need only this state.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from copy import copy
from itertools import count
from typing import Protocol

from runnel.backends.local.task_board import TaskBoard
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.retry import ErrorInfo
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock
from runnel.ports.store import Lease
from runnel.ports.workers import (
    HeartbeatReply,
    OrchestratorRecord,
    QueueRecord,
    WorkerInfo,
    WorkerRecord,
)

_REPORT_TYPES = (*TASK_ENDINGS, TaskStarted)


class TokenTaker(Protocol):
    async def __call__(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float: ...


class ResultCacheBackend(Protocol):
    async def get_cached_result(self, key: str) -> bytes | None: ...

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None: ...


class LocalTaskQueue:
    def __init__(
        self, board: TaskBoard, clock: Clock, take_token: TokenTaker, results: ResultCacheBackend
    ) -> None:
        self._board = board
        self._clock = clock
        self._take_token = take_token
        self.get_cached_result = results.get_cached_result
        self.put_cached_result = results.put_cached_result

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        queue_names = None if queues is None else frozenset(queues)
        board = self._board
        entries = board.ready.pop(queue_names, limit)
        if not entries and wait_s > 0:
            deadline = self._clock.monotonic() + wait_s
            with board.ready.subscribe(queue_names) as arrived:
                # If another worker took the task first, this worker continues to wait.
                while not entries and (remaining_s := deadline - self._clock.monotonic()) > 0:
                    arrived.clear()
                    await self._clock.wait(arrived, remaining_s)
                    entries = board.ready.pop(queue_names, limit)
        return board.assign(worker, entries, starts=starts_tasks)

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        return [self._board.start(worker, token) for token in tokens]

    def begin(self, token: TaskToken) -> None:
        self._board.mark_running(token)

    def end(self, token: TaskToken) -> None:
        self._board.mark_ended(token)

    async def isolate(self, worker: str, token: TaskToken) -> None:
        self._board.isolate(worker, token)

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        return [self._report(worker, report) for report in reports]

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        return self._board.beat(worker, holds, about=about, now=self._clock.monotonic())

    async def drain(self, worker: str) -> bool:
        return self._board.drain(worker)

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        record = self._board.get_or_add_worker(worker)
        if not record.dropped and wait_s > 0:
            record.wakeup.clear()
            await self._clock.wait(record.wakeup, wait_s)
        dropped = list(record.dropped)
        record.dropped.clear()
        return dropped

    async def leave(self, worker: str) -> None:
        self._board.remove_worker(worker, "its worker ended", is_crash=False)

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        return self._board.list_workers(self._clock.monotonic(), with_dead=with_dead)

    async def queues(self) -> Sequence[QueueRecord]:
        """Returns the non-empty queues; this store keeps no record of empty queues."""
        now, ready = self._clock.now(), self._board.ready
        waiting_by_queue = ((name, ready.list_waiting(name)) for name in ready.names())
        return [
            QueueRecord(queue=name, depth=len(waiting), waits_s=now - waiting[0].task.issued_at)
            for name, waiting in waiting_by_queue
        ]

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        return await self._take_token(
            tag, rate_per_second=rate_per_second, burst=burst, wait_s_max=wait_s_max
        )

    def _report(self, worker: str, report: Command) -> bool:
        if not isinstance(report, _REPORT_TYPES):
            raise BrokenInvariantError(f"{type(report).__name__} is not a worker's report")
        entry = self._board.find_held(worker, report.token)
        if entry is None:
            return False
        if type(report) is TaskStarted:
            self._board.forward_report(entry, report)
        else:
            self._board.finish(entry, report)
        return True


# -- token buckets, each kept as one number: the time at which it will be full again -----------

# If the fill time of a bucket exceeds the longest possible time by more than this, the clock was
# turned back.
CLOCK_JUMP_S_MAX = 3_600.0


def take_rate_token(
    full_at: float, *, now: float, rate_per_second: float, burst: int, wait_s_max: float
) -> tuple[float, float]:
    """Takes a token from a stored bucket, as `reserve_token` does.

    Resets the bucket if the clock was turned back after the bucket was stored.
    """
    interval_s = 1.0 / rate_per_second
    valid_full_at = full_at if full_at - now < burst * interval_s + CLOCK_JUMP_S_MAX else now
    return reserve_token(
        valid_full_at, now=now, interval_s=interval_s, burst=burst, wait_s_max=wait_s_max
    )


def reserve_token(
    full_at: float, *, now: float, interval_s: float, burst: int, wait_s_max: float
) -> tuple[float, float]:
    """Takes one token; returns the seconds to wait for it, and the new `full_at` of the bucket.

    Takes no token if the wait is longer than `wait_s_max`; `full_at` then does not change.
    """
    wait_s = max(0.0, full_at - (burst - 1) * interval_s - now)
    if wait_s > wait_s_max:
        return wait_s, full_at
    return wait_s, max(full_at, now) + interval_s


class LocalTokenBuckets:
    """Token buckets in memory, which are lost when the process ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    async def take(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        now = self._clock.monotonic()
        wait_s, self._full_at[tag] = take_rate_token(
            self._full_at.get(tag, now),
            now=now,
            rate_per_second=rate_per_second,
            burst=burst,
            wait_s_max=wait_s_max,
        )
        return wait_s


# -- cached results ----------------------------------------------------------------------------

# Above this number of results, the oldest result is evicted. A node computes an evicted result
# again.
CACHE_BYTES_MAX = 64 * 1024 * 1024


class LocalResultCache:
    def __init__(self, clock: Clock, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._size = 0
        self._entries: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def get_cached_result(self, key: str) -> bytes | None:
        ends_at, data = self._entries.get(key, (0.0, b""))
        return data if ends_at > self._clock.monotonic() else None

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        self._size -= len(self._entries.pop(key, (0.0, b""))[1])
        self._entries[key] = self._clock.monotonic() + ttl_s, data
        self._size += len(data)
        while self._size > self._bytes_max:
            self._size -= len(self._entries.popitem(last=False)[1][1])


# -- request windows ---------------------------------------------------------------------------

# Above this number of callers, the window of the caller with the oldest request is deleted.
CALLERS_MAX = 10_000


class LocalRequestWindows:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._request_times: OrderedDict[str, deque[float]] = OrderedDict()

    async def admit(self, caller: str, *, limit: int, window_s: float) -> float:
        now = self._clock.monotonic()
        request_times = self._request_times.setdefault(caller, deque())
        self._request_times.move_to_end(caller)
        if len(self._request_times) > CALLERS_MAX:
            self._request_times.popitem(last=False)
        while request_times and request_times[0] <= now - window_s:
            request_times.popleft()
        if len(request_times) >= limit:
            return request_times[len(request_times) - limit] + window_s - now
        request_times.append(now)
        return 0.0


# -- orchestrators -----------------------------------------------------------------------------


class LocalMembership:
    def __init__(self) -> None:
        self._counters: dict[str, int] = {}
        # All orchestrators share one heartbeat counter, so an orchestrator that returns never gets
        # a number that was used before.
        self._heartbeats = count(1)

    def copy(self) -> "LocalMembership":
        copied = LocalMembership()
        copied._counters, copied._heartbeats = dict(self._counters), copy(self._heartbeats)
        return copied

    def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        self._counters[owner] = next(self._heartbeats)
        return [
            OrchestratorRecord(owner=name, counter=counter)
            for name, counter in self._counters.items()
        ]

    def unregister_orchestrator(self, owner: str, counter: int | None) -> None:
        if counter is None or self._counters.get(owner) == counter:
            self._counters.pop(owner, None)


# -- methods that stores with tasks in memory share --------------------------------------------


class LocalState(Protocol):
    board: TaskBoard
    membership: LocalMembership


class LocalStore:
    """The methods of the Store port that need only the tasks and orchestrators in memory."""

    def __init__(self, state: LocalState, clock: Clock) -> None:
        self._local = state
        self._clock = clock

    async def restore(self, lease: Lease) -> Lease:
        return lease

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        return self._local.membership.heartbeat_orchestrator(owner)

    async def unregister_orchestrator(self, owner: str, *, counter: int | None = None) -> None:
        self._local.membership.unregister_orchestrator(owner, counter)

    async def unread_s(self, partition: int) -> float:
        return 0.0

    async def unarchived(self, partition: int) -> int:
        return 0

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        return self._local.board.remove_dead_worker(record)

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        before = self._clock.now() - waiting_s
        return self._local.board.reject_unclaimed(queue, error, issued_before=before, limit=limit)

    async def forget_queue(self, record: QueueRecord) -> bool:
        """Does nothing: this store keeps no record of empty queues."""
        return True
