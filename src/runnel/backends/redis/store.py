"""Partitions and their owners, on a Redis server."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from runnel.backends.matching import check_bounds
from runnel.backends.redis.commits import (
    commit_args,
    commit_keys,
    inbox_entries,
    is_behind,
    unread_reports,
    unread_s,
)
from runnel.backends.redis.connection_pool import Lines, OtherRunError
from runnel.backends.redis.keys import Keys, Layout, decode_timer_key, encode
from runnel.backends.redis.leases import Leases, RedisAttendance, fenced, fenced_by_restart, run_of
from runnel.backends.redis.tasks import Losses
from runnel.core.effects import TimerKey
from runnel.core.ids import ExecutionId, Token
from runnel.core.workflow import ErrorInfo
from runnel.errors import ArchiveBehindError, BrokenInvariantError, FencedError
from runnel.ports.clock import Clock
from runnel.ports.store import (
    Commit,
    CommitLimits,
    InboxEntry,
    Lease,
    LeaseRecord,
    Position,
    TimerSet,
)
from runnel.ports.workers import Attendance, QueueRecord, WorkerRecord

# What a store asks of its archive when a partition is taken.


class Rescue(Protocol):
    async def epoch_min(self, partition: int) -> int:
        """The least epoch that is above all that the archive has seen."""

    async def restore(self, lease: Lease) -> Lease:
        """As `Store.restore`."""


class NoArchive:
    """Redis by itself: what it has lost is lost."""

    async def epoch_min(self, partition: int) -> int:
        return 0

    async def restore(self, lease: Lease) -> Lease:
        return lease


NO_ARCHIVE = NoArchive()


# The server does nothing else meanwhile.
LOADED_AT_ONCE = 100
# What commit.lua answers.
REFUSED, WRITTEN = 0, 1
# How often, and for how long, a commit waits for room in the journal.
LOOK_AGAIN_S = 0.1
ROOM_WITHIN_S = 5.0


class RedisStore:
    fails_together = False

    def __init__(
        self,
        lines: Lines,
        keys: Keys,
        layout: Layout,
        *,
        leases: Leases,
        losses: Losses,
        limits: CommitLimits,
        letters_max: int,
        clock: Clock,
        journal_entries_max: int,
        rescue: Rescue = NO_ARCHIVE,
    ) -> None:
        self.limits = limits
        self._lines = lines
        self._keys = keys
        self._layout = layout
        self._letters_max = letters_max
        self._leases = leases
        self._losses = losses
        self._attendance = RedisAttendance(lines, keys, incarnation=layout.incarnation)
        self._clock = clock
        self._journal_entries_max = journal_entries_max
        self._rescue = rescue
        self._commit_keys = [commit_keys(keys, number) for number in range(layout.partitions)]

    async def partitions(self) -> Sequence[int]:
        return range(self._layout.partitions)

    async def route(self, aggregate_id: str, *, is_new: bool = False) -> int:
        return self._layout.route(aggregate_id)

    async def observe(self, partition: int) -> LeaseRecord | None:
        return await self._leases.observe(partition)

    async def acquire(
        self, partition: int, owner: str, *, over: LeaseRecord | None = None
    ) -> Lease:
        epoch_min = await self._rescue.epoch_min(partition)
        return await self._leases.acquire(partition, owner, over=over, epoch_min=epoch_min)

    async def restore(self, lease: Lease) -> Lease:
        return await self._rescue.restore(lease)

    async def renew(self, lease: Lease) -> None:
        try:
            await self._leases.renew(lease)
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error

    async def release(self, lease: Lease) -> None:
        await self._leases.release(lease)

    async def attend(self, owner: str) -> Sequence[Attendance]:
        return await self._attendance.attend(owner)

    async def depart(self, owner: str, *, counter: int | None = None) -> None:
        await self._attendance.depart(owner, counter)

    async def commit(self, lease: Lease, commit: Commit) -> None:
        check_bounds(commit, self.limits)
        holding = self._leases.holding(lease)
        if holding.is_current:
            _check_read(commit.consumed, holding.position)
        if commit.timers_set or commit.timers_cleared:
            holding.is_due_known = False
        args = commit_args(
            self._layout,
            lease,
            commit,
            letters_max=self._letters_max,
            journal_entries_max=self._journal_entries_max,
        )
        answer, *found = await self._when_there_is_room(lease, args)
        if answer == REFUSED:
            raise _refused(lease, commit, *found)
        if answer != WRITTEN:
            raise ArchiveBehindError(lease.partition, int(found[0]))

    async def _when_there_is_room(self, lease: Lease, args: Sequence[Any]) -> Any:
        """A commit that finds the journal full has written nothing: it may be sent again."""
        keys = self._commit_keys[lease.partition]
        deadline = self._clock.monotonic() + ROOM_WITHIN_S
        while True:
            reply = await self._run(lease, "commit", keys, args)
            if reply[0] in (REFUSED, WRITTEN) or self._clock.monotonic() > deadline:
                return reply
            await self._clock.sleep(LOOK_AGAIN_S)

    async def read_inbox(self, lease: Lease, *, limit: int, wait_s: float) -> Sequence[InboxEntry]:
        holding = self._leases.holding(lease)
        key = f"{self._keys.inbox}{lease.partition}"
        rest = ("COUNT", limit, "STREAMS", key, holding.position)
        try:
            if wait_s > 0:
                reply = await self._lines.wait("XREAD", *rest, wait_s=wait_s, under=run_of(lease))
            else:
                reply = await self._lines.call("XREAD", *rest, under=run_of(lease))
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error
        entries = inbox_entries(reply[0][1]) if reply else []
        if entries:
            holding.position = entries[-1].position
        return entries

    async def due_timers(self, lease: Lease, now: float, *, limit: int) -> Sequence[TimerSet]:
        number = lease.partition
        keys = [
            f"{self._keys.partition}{number}",
            f"{self._keys.timers}{number}",
            f"{self._keys.attempts}{number}",
        ]
        args = [lease.epoch, lease.nonce, repr(now), limit]
        is_held, *found = await self._run(lease, "due", keys, args)
        if not is_held:
            raise fenced(lease, epoch=int(found[0]))
        timers, attempts = found
        return [
            TimerSet(key=decode_timer_key(key), due=float(due), attempt=int(attempt))
            for key, due, attempt in zip(timers[::2], timers[1::2], attempts, strict=True)
        ]

    async def next_due(self, lease: Lease) -> float | None:
        """Asked before every wait, and changed by few commits: so it is remembered."""
        holding = self._leases.holding(lease)
        if not holding.is_due_known:
            found = await self.due_timers(lease, float("inf"), limit=1)
            holding.next_due = found[0].due if found else None
            holding.is_due_known = True
        return holding.next_due

    async def load(self, aggregate_id: str) -> Sequence[bytes]:
        entries: list[bytes] = await self._lines.call(
            "LRANGE", self._keys.history + aggregate_id, 0, -1, is_large=True
        )
        return entries

    async def load_many(self, aggregate_ids: Sequence[str]) -> Sequence[Sequence[bytes]]:
        found: list[Sequence[bytes]] = []
        for first in range(0, len(aggregate_ids), LOADED_AT_ONCE):
            ids = aggregate_ids[first : first + LOADED_AT_ONCE]
            found += await self._lines.run("load", [self._keys.history], ids, is_large=True)
        return found

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        found = await self._lines.call("ZRANGE", f"{self._keys.running}{partition}", 0, -1)
        return [ExecutionId(each.decode()) for each in found]

    async def keys_of(self, partition: int) -> Sequence[str]:
        found = await self._lines.call("SMEMBERS", f"{self._keys.limits}{partition}")
        return sorted(each.decode() for each in found)

    async def unknown_tasks(
        self, partition: int, tokens: Sequence[Token]
    ) -> Mapping[Token, bool | None]:
        """First those that are out, then the reports: a task moves from here to there."""
        if not tokens:
            return {}
        found = await self._lines.call("HMGET", self._keys.out, *map(encode, tokens))
        missing = [token for token, where in zip(tokens, found, strict=True) if where is None]
        if not missing:
            return {}
        reported = await unread_reports(self._lines, f"{self._keys.inbox}{partition}")
        return {token: None for token in missing if token not in reported}

    async def unset_timers(self, partition: int, keys: Sequence[TimerKey]) -> Sequence[TimerKey]:
        if not keys:
            return ()
        attempts = f"{self._keys.attempts}{partition}"
        found = await self._lines.call("HMGET", attempts, *map(encode, keys))
        return [key for key, attempt in zip(keys, found, strict=True) if attempt is None]

    async def unread_s(self, partition: int) -> float:
        return await unread_s(self._lines, f"{self._keys.inbox}{partition}")

    async def unarchived(self, partition: int) -> int:
        found: int = await self._lines.call("XLEN", f"{self._keys.journal}{partition}")
        return found

    async def lose_tasks_of(self, judged: WorkerRecord) -> int:
        return await self._losses.lose(judged.worker, "its worker is dead", judged=judged)

    async def reject_tasks(
        self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int
    ) -> int:
        return await self._losses.reject(queue, error, waiting_s=waiting_s, limit=limit)

    async def forget_queue(self, judged: QueueRecord) -> bool:
        keys = [self._keys.queues, self._keys.tasks + judged.queue]
        return bool(await self._lines.run("forget_queue", keys, [judged.queue, judged.last]))

    async def _run(self, lease: Lease, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Refused before it is sent when the server has restarted since the lease was acquired."""
        try:
            return await self._lines.run(name, keys, args, under=run_of(lease))
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error


def _check_read(consumed: Position | None, read: Position) -> None:
    """Raises BrokenInvariantError for a position behind the last one that was read."""
    if consumed is not None and is_behind(consumed, read):
        raise BrokenInvariantError(f"inbox position {consumed} was never read")


def _refused(
    lease: Lease, commit: Commit, epoch: bytes, is_nonce: int, sequence: int
) -> FencedError:
    if is_nonce and int(epoch) == lease.epoch:
        return FencedError(
            lease.partition,
            held=f"sequence {commit.sequence - 1}",
            current=f"sequence {sequence}",
        )
    return fenced(lease, epoch=int(epoch))
