"""The worker's side of a store whose tasks live in this process."""

from collections.abc import Sequence
from typing import Protocol

from runnel.backends.local.board import TaskBoard
from runnel.core.commands import TASK_ENDINGS, Command, TaskStarted
from runnel.core.effects import Task
from runnel.core.ids import Token
from runnel.errors import BrokenInvariantError
from runnel.ports.clock import Clock
from runnel.ports.registry import Orders, QueueRecord, WorkerAbout, WorkerRecord

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
