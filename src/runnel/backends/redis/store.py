"""Partitions, leases and commits on a Redis server."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from runnel.backends.redis.commits import (
    build_commit_args,
    build_commit_keys,
    decode_inbox_entries,
    find_unread_reports,
    is_after,
    measure_unread_s,
)
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.journal import RedisJournal
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout, decode_timer_key, encode
from runnel.backends.redis.leases import (
    RedisLeases,
    RedisMembership,
    RestartFence,
    build_fenced_error,
    parse_run_id,
    run_fenced_script,
)
from runnel.backends.redis.options import RedisOptions
from runnel.backends.redis.tasks import LostTaskReporter
from runnel.core.effects import TimerKey
from runnel.core.ids import ExecutionId, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.errors import ArchiveBehindError, BrokenInvariantError, FencedError
from runnel.ports.clock import Clock
from runnel.ports.store import (
    Commit,
    InboxEntry,
    InboxPosition,
    Lease,
    LeaseRecord,
    LossKind,
    TimerRecord,
)
from runnel.ports.workers import OrchestratorRecord, QueueRecord, WorkerRecord


class PartitionRestorer(Protocol):
    async def find_epoch_min(self, partition: int) -> int:
        """Returns the lowest epoch that is above all epochs in the archive."""

    async def restore(self, lease: Lease) -> Lease:
        """Restores the partition as `Store.restore` does."""


class NullRestorer:
    """The restorer for a Redis without an archive, which can't restore lost data."""

    async def find_epoch_min(self, partition: int) -> int:
        return 0

    async def restore(self, lease: Lease) -> Lease:
        return lease


NO_RESTORER = NullRestorer()


# The number of histories per script call. The server runs no other command during the call.
LOAD_BATCH_SIZE = 100
# Replies of commit.lua.
REFUSED, WRITTEN = 0, 1
# The poll interval and the maximum duration of the wait while the journal is full.
JOURNAL_POLL_INTERVAL_S = 0.1
JOURNAL_WAIT_S_MAX = 5.0


class RedisStore:
    has_shared_failures = False

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        layout: RedisLayout,
        options: RedisOptions,
        *,
        leases: RedisLeases,
        loss_reporter: LostTaskReporter,
        clock: Clock,
        restorer: PartitionRestorer = NO_RESTORER,
    ) -> None:
        self.limits = options.limits
        self._pool = pool
        self._keys = keys
        self._layout = layout
        self._letters_max = options.letters_max
        self._leases = leases
        self._journal = RedisJournal(pool, keys)
        self._loss_reporter = loss_reporter
        self._membership = RedisMembership(pool, keys, incarnation=layout.incarnation)
        self._clock = clock
        self._journal_entries_max = options.journal_entries_max
        self._restorer = restorer
        self._commit_keys = [build_commit_keys(keys, number) for number in range(layout.partitions)]

    async def partitions(self) -> Sequence[int]:
        return range(self._layout.partitions)

    async def partitions_with_work(self) -> Sequence[int]:
        return await self.partitions()

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._layout.route(aggregate_id)

    async def observe(self, partition: int) -> LeaseRecord | None:
        return await self._leases.observe(partition)

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None = None
    ) -> Lease:
        epoch_min = await self._restorer.find_epoch_min(partition)
        return await self._leases.acquire(partition, owner, expected=expected, epoch_min=epoch_min)

    async def restore(self, lease: Lease) -> Lease:
        return await self._restorer.restore(lease)

    async def renew(self, lease: Lease) -> None:
        await self._leases.renew(lease)

    async def release(self, lease: Lease) -> None:
        await self._leases.release(lease)

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        return await self._membership.heartbeat_orchestrator(owner)

    async def unregister_orchestrator(self, owner: str, *, counter: int | None = None) -> None:
        await self._membership.unregister_orchestrator(owner, counter)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        self.limits.check(commit)
        state = self._leases.get_state(lease)
        if state.is_current:
            _check_read(commit.consumed, state.position)
        if commit.timers_set or commit.timers_cleared:
            state.is_next_due_known = False
        args = build_commit_args(
            self._layout,
            lease,
            commit,
            letters_max=self._letters_max,
            journal_entries_max=self._journal_entries_max,
        )
        answer, *details = await self._commit_when_journal_has_room(lease, args)
        if answer == REFUSED:
            raise _build_refusal(lease, commit, *details)
        if answer != WRITTEN:
            raise ArchiveBehindError(lease.partition, int(details[0]))

    async def _commit_when_journal_has_room(self, lease: Lease, args: Sequence[Any]) -> Any:
        """Sends the commit, and repeats it while the journal is full.

        A repetition is safe, because the script writes nothing while the journal is full.
        """
        keys = self._commit_keys[lease.partition]
        deadline = self._clock.monotonic() + JOURNAL_WAIT_S_MAX
        while True:
            reply = await self._run_commit(lease, keys, args)
            if reply[0] in (REFUSED, WRITTEN) or self._clock.monotonic() > deadline:
                return reply
            await self._clock.sleep(JOURNAL_POLL_INTERVAL_S)

    async def _run_commit(self, lease: Lease, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Sends the commit.

        Sends nothing and raises FencedError if the server has restarted since the lease was
        acquired.
        """
        with RestartFence(lease):
            return await self._pool.run_script(
                "commit", keys, args, expected_run_id=parse_run_id(lease)
            )

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        state = self._leases.get_state(lease)
        key = f"{self._keys.inbox}{lease.partition}"
        arguments = ("COUNT", limit, "STREAMS", key, state.position)
        with RestartFence(lease):
            if wait_s > 0:
                reply = await self._pool.call_blocking(
                    "XREAD", *arguments, wait_s=wait_s, expected_run_id=parse_run_id(lease)
                )
            else:
                reply = await self._pool.call(
                    "XREAD", *arguments, expected_run_id=parse_run_id(lease)
                )
        entries = decode_inbox_entries(reply[0][1]) if reply else []
        if entries:
            state.position = entries[-1].position
        return entries

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerRecord]:
        number = lease.partition
        keys = [f"{self._keys.timers}{number}", f"{self._keys.attempts}{number}"]
        timers, attempts = await run_fenced_script(
            self._pool, self._keys, lease, "list_due_timers", keys=keys, args=[repr(now), limit]
        )
        return [
            TimerRecord(key=decode_timer_key(key), due=float(due), attempt=int(attempt))
            for key, due, attempt in zip(timers[::2], timers[1::2], attempts, strict=True)
        ]

    async def next_due(self, lease: Lease) -> float | None:
        """Returns the due time of the earliest timer, or None if no timer is set.

        The result is cached, because the owner calls this method before every wait and few commits
        change timers.
        """
        state = self._leases.get_state(lease)
        if not state.is_next_due_known:
            timers = await self.due_timers(lease, float("inf"), limit=1)
            state.next_due = timers[0].due if timers else None
            state.is_next_due_known = True
        return state.next_due

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        entries: list[bytes] = await self._pool.call(
            "LRANGE", self._keys.history + aggregate_id, 0, -1, is_large=True
        )
        return entries

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        histories: list[Sequence[bytes]] = []
        for first in range(0, len(aggregate_ids), LOAD_BATCH_SIZE):
            ids = aggregate_ids[first : first + LOAD_BATCH_SIZE]
            histories += await self._pool.run_script(
                "load_histories", [self._keys.history], ids, is_large=True
            )
        return histories

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        return await self._journal.list_running(partition)

    async def list_concurrency_keys(self, partition: int) -> Sequence[str]:
        members = await self._pool.call("SMEMBERS", f"{self._keys.limits}{partition}")
        return sorted(member.decode() for member in members)

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[TaskToken]
    ) -> Mapping[TaskToken, LossKind | None]:
        """Returns those of the tokens that are neither queued nor claimed nor reported.

        Reads the task locations before the reports. In the other order, a task that is reported
        between the two reads would be missed.
        """
        if not tokens:
            return {}
        locations = await self._pool.call("HMGET", self._keys.task_locations, *map(encode, tokens))
        missing = [
            token for token, location in zip(tokens, locations, strict=True) if location is None
        ]
        if not missing:
            return {}
        reported = await find_unread_reports(self._pool, f"{self._keys.inbox}{partition}")
        return {token: None for token in missing if token not in reported}

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        if not keys:
            return ()
        attempts = f"{self._keys.attempts}{partition}"
        stored = await self._pool.call("HMGET", attempts, *map(encode, keys))
        return [key for key, attempt in zip(keys, stored, strict=True) if attempt is None]

    async def unread_s(self, partition: int) -> float:
        return await measure_unread_s(self._pool, f"{self._keys.inbox}{partition}")

    async def unarchived(self, partition: int) -> int:
        return await self._journal.length(partition)

    async def lose_worker_tasks(self, record: WorkerRecord) -> int:
        return await self._loss_reporter.report_lost(
            record.worker, "its worker is dead", judged=record
        )

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        return await self._loss_reporter.report_rejected(
            queue, error, waiting_s=waiting_s, limit=limit
        )

    async def forget_queue(self, record: QueueRecord) -> bool:
        keys = [
            self._keys.queues,
            self._keys.tasks + record.queue,
            self._keys.arrivals + record.queue,
            self._keys.turns + record.queue,
        ]
        return bool(await self._pool.run_script("forget_queue", keys, [record.queue]))


def _check_read(consumed: InboxPosition | None, read: InboxPosition) -> None:
    """Raises BrokenInvariantError if `consumed` is after the last position that was read."""
    if consumed is not None and is_after(consumed, read):
        raise BrokenInvariantError(f"inbox position {consumed} was never read")


def _build_refusal(
    lease: Lease, commit: Commit, epoch: bytes, is_nonce_current: int, sequence: int
) -> FencedError:
    if is_nonce_current and int(epoch) == lease.epoch:
        return FencedError(
            lease.partition,
            held=f"sequence {commit.sequence - 1}",
            current=f"sequence {sequence}",
        )
    return build_fenced_error(lease, epoch=int(epoch))
