"""The worker's side of the store: claim, start, report, beat."""

from collections.abc import Sequence

from runnel.backends.local.board import BEATS_MISSED_MAX
from runnel.backends.local.buckets import LEAP_S
from runnel.backends.redis.commits import behind_position
from runnel.backends.redis.hands import Hands
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.line import Arg
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.losses import Losses
from runnel.backends.redis.rotation import Rotation
from runnel.backends.redis.values import decode_task, decode_token, encode, lost_around
from runnel.backends.redis.worker_records import worker_records
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import Task
from runnel.core.ids import Token
from runnel.errors import BrokenInvariantError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.registry import Orders, QueueRecord, WorkerAbout, WorkerRecord
from runnel.ports.store import Position

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
