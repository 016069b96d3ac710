"""The worker's side of the store: claim, start, report, beat."""

from collections.abc import Iterable, Sequence
from itertools import count

import msgspec

from runnel.backends.local.task_board import BEATS_MISSED_MAX, DEAD_LISTED_MAX
from runnel.backends.local.tasks import LEAP_S
from runnel.backends.redis.commits import behind_position
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.delivery import Hands
from runnel.backends.redis.keys import (
    Keys,
    decode_task,
    decode_token,
    encode,
    failed_around,
    lost_around,
)
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import Task
from runnel.core.ids import Token
from runnel.core.workflow import ErrorInfo
from runnel.errors import BrokenInvariantError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.store import Position
from runnel.ports.workers import Orders, QueueRecord, WorkerAbout, WorkerRecord

# What becomes of the tasks of a worker that is gone, or that was never there.


class Losses:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def lose(self, worker: str, reason: str, *, judged: WorkerRecord | None = None) -> int:
        """With `judged`, none when the worker has given another sign of life than that one.

        Without, it has said goodbye: then none of its tasks counts as started.
        """
        keys = self._keys
        count: int = await self._lines.run(
            "lose",
            [
                keys.workers,
                keys.held + worker,
                keys.out,
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
                *lost_around(reason, is_crash=judged is not None and judged.is_crash),
                DEAD_LISTED_MAX,
            ],
        )
        return count

    async def reject(self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int) -> int:
        """Tasks that nobody has claimed for so long fail."""
        keys = [self._keys.tasks + queue, self._keys.out, self._keys.inbox]
        args: list[Arg] = [int(waiting_s * 1_000), limit, *failed_around(error)]
        count: int = await self._lines.run("reject", keys, args)
        return count


# In which order queues are looked at: the one that was served longest ago comes first.


class Rotation:
    """Knows the queues that this client has met and that there still are."""

    def __init__(self) -> None:
        self._turns = count(1)
        self._last: dict[str, int] = {}

    def order(self, wanted: Sequence[str] | None) -> list[str]:
        """Of the wanted queues, or of all that are known."""
        names = self._last if wanted is None else wanted
        return sorted(names, key=lambda name: self._last.get(name, 0))

    def served(self, names: Iterable[str]) -> None:
        for name in names:
            self._last[name] = next(self._turns)

    def known(self, names: Iterable[str]) -> None:
        """These, and no others, are there."""
        self._last = {name: self._last.get(name, 0) for name in names}


# Workers as `workers.lua` lists them.

_abouts = msgspec.json.Decoder(WorkerAbout)


def worker_records(
    now: int,
    living: Sequence[tuple[bytes, bytes, int, bytes]],
    dead: Sequence[tuple[bytes, bytes]],
) -> list[WorkerRecord]:
    """The dead once each, and only those that have not come back."""
    records = {
        worker: _record(now, worker, about, counter=int(counter), holds=holds)
        for worker, counter, holds, about in living
    }
    for worker, about in dead:
        if worker not in records:
            records[worker] = _record(now, worker, about, is_dead=True)
    return list(records.values())


def _record(
    now: int,
    worker: bytes,
    about: bytes,
    *,
    counter: int = 0,
    holds: int = 0,
    is_dead: bool = False,
) -> WorkerRecord:
    seen_at, _, said = about.partition(b" ")
    return WorkerRecord(
        worker=worker.decode(),
        counter=counter,
        holds=holds,
        about=_abouts.decode(said) if said else None,
        silent_s=float(max(0, now - int(seen_at))) if seen_at else 0.0,
        is_dead=is_dead,
    )


DROPPED_AT_ONCE = 1_000


class RedisTasks:
    def __init__(self, lines: Lines, keys: Keys, clock: Clock, losses: Losses) -> None:
        self._lines = lines
        self._keys = keys
        self._clock = clock
        self._losses = losses
        self._rotation = Rotation()
        self._hands = Hands(lines, keys, clock)
        self._dropped_read: dict[str, Position] = {}

    async def claim(
        self,
        worker: str,
        queues: Sequence[str] | None,
        *,
        limit: int,
        wait_s: float,
        starts: bool = False,
    ) -> Sequence[Task]:
        deadline = self._clock.monotonic() + wait_s
        while True:
            waits = wait_s > 0 and deadline > self._clock.monotonic()
            if waits:
                await self._hands.listen(worker)
            if tasks := await self._take_late(worker, limit):
                return tasks
            tasks, since = await self._take(worker, queues, limit, starts=starts, waits=waits)
            if tasks or not waits:
                return tasks
            left_s = deadline - self._clock.monotonic()
            tasks = await self._hands.wait(worker, wait_s=left_s, since=since)
            if tasks:
                return tasks

    async def start(self, worker: str, tokens: Sequence[Token], *, now: float) -> Sequence[bool]:
        return await self._start(worker, tokens)

    def begin(self, token: Token) -> None:
        """The server knows of the start, and lives on when a worker dies."""

    async def report(self, worker: str, reports: Sequence[Command]) -> Sequence[bool]:
        args: list[Arg] = []
        for report in reports:
            if not isinstance(report, (*TASK_ENDINGS, TaskStarted)):
                raise BrokenInvariantError(f"{type(report).__name__} is not a worker's report")
            is_ending = int(not isinstance(report, TaskStarted))
            args += (encode(report.token), is_ending, encode_message(report))
        keys = [self._keys.held + worker, self._keys.out, self._keys.inbox]
        return [*map(bool, await self._lines.run("report", keys, args))]

    async def beat(
        self, worker: str, holds: Sequence[Token], *, about: WorkerAbout | None = None
    ) -> Orders:
        keys = self._keys
        read = self._dropped_read.get(worker)
        unheld, drains = await self._lines.run(
            "beat",
            [
                keys.workers,
                keys.signs,
                keys.held + worker,
                keys.out,
                keys.dropped + worker,
                keys.about,
                keys.drained,
                keys.waiting,
                keys.inbox,
            ],
            [
                worker,
                "" if read is None else behind_position(read),
                BEATS_MISSED_MAX,
                *lost_around("its worker lives and does not hold it", is_crash=False)[:2],
                b"" if about is None else encode(about),
                int(about is not None and about.is_draining),
                *map(encode, holds),
            ],
        )
        return Orders(stop=[holds[number - 1] for number in unheld], drains=bool(drains))

    async def drain(self, worker: str) -> bool:
        keys = [self._keys.workers, self._keys.drained]
        return bool(await self._lines.run("drain", keys, [worker]))

    async def wait_dropped(self, worker: str, *, wait_s: float) -> Sequence[Token]:
        after = self._dropped_read.get(worker, "0-0")
        rest = ("COUNT", DROPPED_AT_ONCE, "STREAMS", self._keys.dropped + worker, after)
        if wait_s > 0:
            reply = await self._lines.wait("XREAD", *rest, wait_s=wait_s)
        else:
            reply = await self._lines.call("XREAD", *rest)
        entries = reply[0][1] if reply else []
        if entries:
            self._dropped_read[worker] = Position(entries[-1][0].decode())
        return [decode_token(fields[1]) for _, fields in entries]

    async def leave(self, worker: str) -> None:
        self._dropped_read.pop(worker, None)
        self._hands.forget(worker)
        await self._losses.lose(worker, "its worker ended")

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        keys = self._keys
        now, living, dead = await self._lines.run(
            "workers", [keys.workers, keys.about, keys.dead, keys.held], [int(with_dead)]
        )
        return worker_records(int(now), living, dead)

    async def queues(self) -> Sequence[QueueRecord]:
        found = await self._lines.run("queues", [self._keys.queues, self._keys.tasks], [])
        records = [
            QueueRecord(
                queue=name.decode(), depth=depth, waits_s=waits_ms / 1_000, last=last.decode()
            )
            for name, depth, waits_ms, last in found
        ]
        return sorted(records, key=lambda record: record.queue)

    async def recall(self, key: str) -> bytes | None:
        data: bytes | None = await self._lines.call("GET", self._keys.result + key, is_large=True)
        return data

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None:
        ends = max(1, round(1_000 * ttl_s))
        await self._lines.call("SET", self._keys.result + key, data, "PX", ends)

    async def take_token(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        args: list[Arg] = [repr(rate_per_second), burst, repr(wait_s_max), LEAP_S]
        return float(await self._lines.run("take_token", [self._keys.bucket + tag], args))

    async def _take_late(self, worker: str, limit: int) -> Sequence[Task]:
        """Of what was handed to it when it did not wait: what it still holds, and waits no more."""
        late = self._hands.take_late(worker)
        if not late:
            return ()
        try:
            holds = await self._start(worker, [each.token for each in late], ends_wait=True)
        except StoreError:
            self._hands.put_back(worker, late)
            raise
        held = [each for each, is_held in zip(late, holds, strict=True) if is_held]
        self._hands.put_back(worker, held[limit:])
        return held[:limit]

    async def _start(
        self, worker: str, tokens: Sequence[Token], *, ends_wait: bool = False
    ) -> list[bool]:
        keys = [self._keys.held + worker, self._keys.waiting]
        args: list[Arg] = [worker if ends_wait else "", *map(encode, tokens)]
        return [*map(bool, await self._lines.run("start", keys, args))]

    async def _take(
        self, worker: str, queues: Sequence[str] | None, limit: int, *, starts: bool, waits: bool
    ) -> tuple[Sequence[Task], float]:
        """And since when it waits, on the server's clock, if it does."""
        keys = self._keys
        order = self._rotation.order(queues)
        bodies, served, names, since = await self._lines.run(
            "claim",
            [
                keys.queues,
                keys.waiting,
                keys.out,
                keys.held + worker,
                keys.workers,
                keys.signs,
                keys.tasks,
            ],
            [worker, limit, int(queues is None), int(starts), int(waits), *order],
        )
        self._rotation.served([name.decode() for name in served])
        if queues is None and not bodies:
            self._rotation.known(name.decode() for name in names)
        return [*map(decode_task, bodies)], float(since)
