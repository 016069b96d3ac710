"""The task queue on a Redis server: claim, start, report, heartbeat, and reports of lost tasks."""

from collections.abc import Iterable, Sequence
from itertools import count

import msgspec

from runnel.backends.local.task_board import BEATS_MISSED_MAX, DEAD_WORKERS_MAX
from runnel.backends.local.tasks import CLOCK_JUMP_S_MAX
from runnel.backends.redis.acceptance import ACCEPTANCE_POLL_S, ServerAcceptance, ServerRun
from runnel.backends.redis.commits import increment_position
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import RedisConnectionPool, ServerChangedError
from runnel.backends.redis.delivery import TaskPushListener
from runnel.backends.redis.keys import (
    RedisKeyNames,
    decode_task,
    decode_token,
    encode,
    split_failed_message,
    split_lost_message,
)
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.retry import ErrorInfo
from runnel.errors import BrokenInvariantError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.store import InboxPosition
from runnel.ports.workers import HeartbeatReply, QueueRecord, WorkerInfo, WorkerRecord

# -- reports for the tasks of a dead worker, or of a queue without workers ----------------------


class LostTaskReporter:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def report_lost(
        self, worker: str, reason: str, *, judged: WorkerRecord | None = None
    ) -> int:
        """Removes a worker and reports its tasks as lost; returns their number.

        If `judged` is given, does nothing if the worker has sent a heartbeat since that record.
        Without `judged`, the worker has shut down regularly, and none of its tasks counts as
        started.
        """
        keys = self._keys
        count: int = await self._pool.run_script(
            "lose_worker_tasks",
            [
                keys.workers,
                keys.held + worker,
                keys.task_locations,
                keys.dropped + worker,
                keys.about,
                keys.dead,
                keys.drained,
                keys.waiting,
                keys.inbox,
            ],
            [
                worker,
                "" if judged is None else judged.counter,
                *split_lost_message(reason, is_crash=judged is not None and judged.is_crash),
                DEAD_WORKERS_MAX,
            ],
        )
        return count

    async def report_rejected(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        """Fails tasks that waited unclaimed for at least `waiting_s`, and returns their number."""
        keys = [
            *(self._keys.tasks, self._keys.lanes, self._keys.arrivals),
            *(self._keys.task_locations, self._keys.inbox),
        ]
        args: list[Arg] = [queue, int(waiting_s * 1_000), limit, *split_failed_message(error)]
        count: int = await self._pool.run_script("reject_tasks", keys, args)
        return count


# -- order of queues: the least recently served queue comes first -------------------------------


class QueueRotation:
    """Orders the queues, the least recently served queue first."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._last_served: dict[str, int] = {}

    def sort_queues(self, queues: Sequence[str] | None) -> list[str]:
        """Returns the given queues, or all known queues, in the order in which to serve them."""
        names = self._last_served if queues is None else queues
        return sorted(names, key=lambda name: self._last_served.get(name, 0))

    def mark_served(self, names: Iterable[str]) -> None:
        for name in names:
            self._last_served[name] = next(self._turns)

    def set_known(self, names: Iterable[str]) -> None:
        """Replaces the known queues by `names`; each queue that stays keeps its place
        in the order.
        """
        self._last_served = {name: self._last_served.get(name, 0) for name in names}


# -- workers, as `list_workers.lua` returns them ------------------------------------------------

_about_decoder = msgspec.json.Decoder(WorkerInfo)


def decode_worker_records(
    now: int,
    live: Sequence[tuple[bytes, bytes, int, bytes]],
    dead: Sequence[tuple[bytes, bytes]],
) -> list[WorkerRecord]:
    """Returns the records of live workers, and one record for each dead worker that has not
    returned.
    """
    records = {
        worker: _decode_worker_record(now, worker, about, counter=int(counter), holds=holds)
        for worker, counter, holds, about in live
    }
    for worker, about in dead:
        if worker not in records:
            records[worker] = _decode_worker_record(now, worker, about, is_dead=True)
    return list(records.values())


def _decode_worker_record(
    now: int,
    worker: bytes,
    about: bytes,
    *,
    counter: int = 0,
    holds: int = 0,
    is_dead: bool = False,
) -> WorkerRecord:
    seen_at, _, encoded = about.partition(b" ")
    return WorkerRecord(
        worker=worker.decode(),
        counter=counter,
        holds=holds,
        about=_about_decoder.decode(encoded) if encoded else None,
        silent_s=float(max(0, now - int(seen_at))) if seen_at else 0.0,
        is_dead=is_dead,
    )


DROPPED_PAGE_SIZE = 1_000


class RedisTaskQueue:
    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        clock: Clock,
        loss_reporter: LostTaskReporter,
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._clock = clock
        self._loss_reporter = loss_reporter
        self._acceptance = ServerAcceptance(pool, keys, clock)
        self._rotation = QueueRotation()
        self._push_listener = TaskPushListener(pool, keys, clock)
        self._dropped_positions: dict[str, InboxPosition] = {}

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts_tasks: bool = False,
    ) -> Sequence[TaskMessage]:
        deadline = self._clock.monotonic() + wait_s
        while True:
            server = await self._acceptance.find_run()
            if server is None:
                remaining_s = deadline - self._clock.monotonic()
                if remaining_s <= 0:
                    return ()
                await self._clock.sleep(min(ACCEPTANCE_POLL_S, remaining_s))
                continue
            waits = wait_s > 0 and deadline > self._clock.monotonic()
            try:
                if waits:
                    await self._push_listener.subscribe(worker)
                if server.is_complete and (tasks := await self._take_stale(worker, limit, server)):
                    return tasks
                tasks, since = await self._claim_queued(
                    worker, queues, limit, server=server, starts=starts_tasks, waits=waits
                )
            except ServerChangedError:
                continue
            if tasks or not waits:
                return tasks
            remaining_s = deadline - self._clock.monotonic()
            if since:
                tasks = await self._push_listener.wait(worker, wait_s=remaining_s, since=since)
            if tasks:
                return tasks

    async def start(
        self, worker: str, tokens: Sequence[TaskToken], *, now: float
    ) -> Sequence[bool]:
        return await self._start(worker, tokens)

    def begin(self, token: TaskToken) -> None:
        """Does nothing: the server has recorded the start, and this record survives the death of a
        worker.
        """

    def end(self, token: TaskToken) -> None:
        """Does nothing, as `begin`."""

    async def isolate(self, worker: str, token: TaskToken) -> None:
        await self._start(worker, [token], is_isolated=True)

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        args: list[Arg] = []
        for report in reports:
            if not isinstance(report, (*TASK_ENDINGS, TaskStarted)):
                raise BrokenInvariantError(f"{type(report).__name__} is not a worker's report")
            is_ending = int(not isinstance(report, TaskStarted))
            args += (encode(report.token), is_ending, encode_message(report))
        keys = [self._keys.held + worker, self._keys.task_locations, self._keys.inbox]
        return [*map(bool, await self._pool.run_script("report_tasks", keys, args))]

    async def beat(
        self, worker: str, holds: Sequence[TaskToken], *, about: WorkerInfo | None = None
    ) -> HeartbeatReply:
        keys = self._keys
        last_read = self._dropped_positions.get(worker)
        unheld, drains = await self._pool.run_script(
            "heartbeat_worker",
            [
                keys.workers,
                keys.heartbeat_counter,
                keys.held + worker,
                keys.task_locations,
                keys.dropped + worker,
                keys.about,
                keys.drained,
                keys.waiting,
                keys.inbox,
            ],
            [
                worker,
                "" if last_read is None else increment_position(last_read),
                BEATS_MISSED_MAX,
                *split_lost_message("its worker is alive but does not hold it", is_crash=False)[:2],
                b"" if about is None else encode(about),
                int(about is not None and about.is_draining),
                *map(encode, holds),
            ],
        )
        return HeartbeatReply(stop=[holds[number - 1] for number in unheld], drains=bool(drains))

    async def drain(self, worker: str) -> bool:
        keys = [self._keys.workers, self._keys.drained]
        return bool(await self._pool.run_script("drain_worker", keys, [worker]))

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[TaskToken]:
        after = self._dropped_positions.get(worker, "0-0")
        arguments = ("COUNT", DROPPED_PAGE_SIZE, "STREAMS", self._keys.dropped + worker, after)
        if wait_s > 0:
            reply = await self._pool.call_blocking("XREAD", *arguments, wait_s=wait_s)
        else:
            reply = await self._pool.call("XREAD", *arguments)
        entries = reply[0][1] if reply else []
        if entries:
            self._dropped_positions[worker] = InboxPosition(entries[-1][0].decode())
        return [decode_token(fields[1]) for _, fields in entries]

    async def leave(self, worker: str) -> None:
        self._dropped_positions.pop(worker, None)
        self._push_listener.forget(worker)
        await self._loss_reporter.report_lost(worker, "its worker ended")

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        keys = self._keys
        now, live, dead = await self._pool.run_script(
            "list_workers", [keys.workers, keys.about, keys.dead, keys.held], [int(with_dead)]
        )
        return decode_worker_records(int(now), live, dead)

    async def queues(self) -> Sequence[QueueRecord]:
        keys = [self._keys.queues, self._keys.tasks, self._keys.arrivals]
        records = [
            QueueRecord(queue=name.decode(), depth=depth, waits_s=waits_ms / 1_000)
            for name, depth, waits_ms in await self._pool.run_script("list_queues", keys, [])
        ]
        return sorted(records, key=lambda record: record.queue)

    async def get_cached_result(self, key: str) -> bytes | None:
        data: bytes | None = await self._pool.call("GET", self._keys.result + key, is_large=True)
        return data

    async def put_cached_result(self, key: str, data: bytes, *, ttl_s: float) -> None:
        ttl_ms = max(1, round(1_000 * ttl_s))
        await self._pool.call("SET", self._keys.result + key, data, "PX", ttl_ms)

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        args: list[Arg] = [repr(rate_per_second), burst, repr(wait_s_max), CLOCK_JUMP_S_MAX]
        return float(await self._pool.run_script("take_token", [self._keys.bucket + tag], args))

    async def _take_stale(
        self, worker: str, limit: int, server: ServerRun
    ) -> Sequence[TaskMessage]:
        """Returns those late pushed tasks that are still assigned to the worker, and marks them as
        started.

        Also removes the worker from the waiting workers.
        """
        stale = self._push_listener.take_stale(worker)
        if not stale:
            return ()
        try:
            holds = await self._start(
                worker, [task.token for task in stale], run_id=server.run_id, ends_wait=True
            )
        except (StoreError, ServerChangedError):
            self._push_listener.requeue(worker, stale)
            raise
        held = [task for task, is_held in zip(stale, holds, strict=True) if is_held]
        self._push_listener.requeue(worker, held[limit:])
        return held[:limit]

    async def _start(
        self,
        worker: str,
        tokens: Sequence[TaskToken],
        *,
        run_id: str | None = None,
        ends_wait: bool = False,
        is_isolated: bool = False,
    ) -> list[bool]:
        keys = [self._keys.held + worker, self._keys.waiting]
        args: list[Arg] = [worker if ends_wait else "", int(not is_isolated), *map(encode, tokens)]
        replies = await self._pool.run_script("start_tasks", keys, args, expected_run_id=run_id)
        return [*map(bool, replies)]

    async def _claim_queued(
        self,
        worker: str,
        queues: Sequence[str] | None,
        limit: int,
        *,
        server: ServerRun,
        starts: bool,
        waits: bool,
    ) -> tuple[Sequence[TaskMessage], float]:
        """Claims queued tasks; returns them and the time at which the call began to wait.

        The time is that of the Redis server. It is 0 if the worker was not registered as waiting.

        If no task is queued and `waits` is set, registers the worker as waiting.
        """
        keys = self._keys
        order = self._rotation.sort_queues(queues)
        bodies, served, names, since = await self._pool.run_script(
            "claim_tasks",
            [
                keys.queues,
                keys.waiting,
                keys.task_locations,
                keys.held + worker,
                keys.workers,
                keys.heartbeat_counter,
                keys.tasks,
                keys.partition,
                keys.arrivals,
                keys.turns,
                keys.lanes,
                keys.last_turn,
            ],
            [
                *(worker, limit, int(queues is None), int(starts), int(waits)),
                "" if server.is_complete else server.run_id,
                *order,
            ],
            expected_run_id=server.run_id,
        )
        self._rotation.mark_served([name.decode() for name in served])
        if queues is None and not bodies:
            self._rotation.set_known(name.decode() for name in names)
        return [*map(decode_task, bodies)], float(since)
