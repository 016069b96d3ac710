"""The worker's side of a store whose tasks live in this process."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from copy import copy
from itertools import count
from typing import Protocol

from runnel.backends.local.task_board import TaskBoard
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import Task
from runnel.core.ids import Token
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock
from runnel.ports.workers import Attendance, Orders, QueueRecord, WorkerAbout, WorkerRecord

_REPORTS = (*TASK_ENDINGS, TaskStarted)


class TakeToken(Protocol):
    async def __call__(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float: ...


class KeptResults(Protocol):
    async def recall(self, key: str) -> bytes | None: ...

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None: ...


class LocalTasks:
    def __init__(
        self, board: TaskBoard, clock: Clock, take_token: TakeToken, results: KeptResults
    ) -> None:
        self._board = board
        self._clock = clock
        self._take_token = take_token
        self.recall = results.recall
        self.keep = results.keep

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts: bool = False,
    ) -> Sequence[Task]:
        wanted = None if queues is None else frozenset(queues)
        board = self._board
        entries = board.ready.pop(wanted, limit)
        if not entries and wait_s > 0:
            deadline = self._clock.monotonic() + wait_s
            with board.ready.waiting(wanted) as arrived:
                # Another worker may have been faster: then this one goes on waiting.
                while not entries and (left_s := deadline - self._clock.monotonic()) > 0:
                    arrived.clear()
                    await self._clock.wait(arrived, left_s)
                    entries = board.ready.pop(wanted, limit)
        return board.hand_over(worker, entries, starts=starts)

    async def start(self, worker: str, tokens: Sequence[Token], *, now: float) -> Sequence[bool]:
        return [self._board.start(worker, token) for token in tokens]

    def begin(self, token: Token) -> None:
        self._board.begin(token)

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        return [self._report(worker, report) for report in reports]

    async def beat(
        self, worker: str, holds: Sequence[Token], *, about: WorkerAbout | None = None
    ) -> Orders:
        return self._board.beat(worker, holds, about=about, now=self._clock.monotonic())

    async def drain(self, worker: str) -> bool:
        return self._board.drain(worker)

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[Token]:
        record = self._board.worker(worker)
        if not record.dropped and wait_s > 0:
            record.told.clear()
            await self._clock.wait(record.told, wait_s)
        dropped = list(record.dropped)
        record.dropped.clear()
        return dropped

    async def leave(self, worker: str) -> None:
        self._board.lose_all(worker, "its worker ended", is_crash=False)

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        return self._board.records(self._clock.monotonic(), with_dead=with_dead)

    async def queues(self) -> Sequence[QueueRecord]:
        """An empty queue is nothing here."""
        now, ready = self._clock.now(), self._board.ready
        found = ((name, ready.waiting_in(name)) for name in ready.names())
        return [
            QueueRecord(queue=name, depth=len(waiting), waits_s=now - waiting[0].task.issued_at)
            for name, waiting in found
        ]

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        return await self._take_token(
            tag, rate_per_second=rate_per_second, burst=burst, wait_s_max=wait_s_max
        )

    def _report(self, worker: str, report: Command) -> bool:
        if not isinstance(report, _REPORTS):
            raise BrokenInvariantError(f"{type(report).__name__} is not a worker's report")
        entry = self._board.held_by(worker, report.token)
        if entry is None:
            return False
        if type(report) is TaskStarted:
            self._board.note(entry, report)
        else:
            self._board.end(entry, report)
        return True


# Token buckets, each kept as one number: the time at which it will be full again.

# A bucket that claims to be further away than this was written before the clock was set back.
LEAP_S = 3_600.0


def take(
    full_at: float, *, now: float, rate_per_second: float, burst: int, wait_s_max: float
) -> tuple[float, float]:
    """(seconds to wait, the bucket's new `full_at`): unchanged when that wait is too long."""
    interval_s = 1.0 / rate_per_second
    known = full_at if full_at - now < burst * interval_s + LEAP_S else now
    wait_s = max(0.0, known - (burst - 1) * interval_s - now)
    if wait_s > wait_s_max:
        return wait_s, known
    return wait_s, max(known, now) + interval_s


class LocalBuckets:
    """Buckets that end with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    async def take(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        now = self._clock.monotonic()
        wait_s, self._full_at[tag] = take(
            self._full_at.get(tag, now),
            now=now,
            rate_per_second=rate_per_second,
            burst=burst,
            wait_s_max=wait_s_max,
        )
        return wait_s


# Results that tasks may share, in the memory of one process.

# The oldest leave first: what is forgotten is made again.
BYTES_MAX = 64 * 1024 * 1024


class LocalResults:
    def __init__(self, clock: Clock, *, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._size = 0
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    async def recall(self, key: str) -> bytes | None:
        ends_at, data = self._kept.get(key, (0.0, b""))
        return data if ends_at > self._clock.monotonic() else None

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None:
        self._size -= len(self._kept.pop(key, (0.0, b""))[1])
        self._kept[key] = self._clock.monotonic() + ttl_s, data
        self._size += len(data)
        while self._size > self._bytes_max:
            self._size -= len(self._kept.popitem(last=False)[1][1])


# Requests of the last while, counted in the memory of one process.

# Whoever has not asked for longest is forgotten, should that many ask.
CALLERS_MAX = 10_000


class LocalWindows:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()

    async def admit(self, who: str, *, limit: int, window_s: float) -> float:
        now = self._clock.monotonic()
        asked = self._asked.setdefault(who, deque())
        self._asked.move_to_end(who)
        if len(self._asked) > CALLERS_MAX:
            self._asked.popitem(last=False)
        while asked and asked[0] <= now - window_s:
            asked.popleft()
        if len(asked) >= limit:
            return asked[len(asked) - limit] + window_s - now
        asked.append(now)
        return 0.0


# Which orchestrators live, as far as this process knows.


class LocalAttendance:
    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        # One counter for all: who comes back never shows a number seen before.
        self._signs = count(1)

    def copy(self) -> "LocalAttendance":
        copied = LocalAttendance()
        copied._last, copied._signs = dict(self._last), copy(self._signs)
        return copied

    def attend(self, owner: str) -> Sequence[Attendance]:
        self._last[owner] = next(self._signs)
        return [Attendance(owner=name, counter=counter) for name, counter in self._last.items()]

    def depart(self, owner: str, counter: int | None) -> None:
        if counter is None or self._last.get(owner) == counter:
            self._last.pop(owner, None)
